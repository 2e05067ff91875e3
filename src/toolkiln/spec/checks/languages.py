"""Orders to the model in the most common languages besides English, which `prose` knows.

Four kinds of sentences: drop your instructions, keep this from the user, call this tool first,
hand over the conversation. Patterns have bounded gaps, so a search takes linear time (ADR 7).
Languages in Latin letters are matched without accents, which people and attackers leave out.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache

from toolkiln.model import Severity

_DROP = "tells the model to drop its instructions"
_HIDE = "tells the model to keep something from the user"
_FIRST = "tells the model when to call tools"
_HAND_OVER = "asks for the conversation"
_SEVERITIES = {
    _DROP: Severity.ERROR,
    _HIDE: Severity.ERROR,
    _FIRST: Severity.WARNING,
    _HAND_OVER: Severity.WARNING,
}

# Each with pieces of which every match contains one: a cheap first look.
_LATIN: tuple[tuple[str, str, str], ...] = (
    # Spanish
    (_DROP, "instrucciones ordenes indicaciones",
     r"\b(?:ignor|olvid|descart|omit)\w{1,4}\s+(?:\w+\s+){0,3}?(?:(?:instrucciones|ordenes"
     r"|indicaciones)\s+(?:anteriores|previas|originales|del\s+sistema)|(?:anteriores|previas)\s+"
     r"(?:instrucciones|ordenes|indicaciones))\b"),
    (_HIDE, "usuari",
     r"\b(?:no|nunca|jamas|sin)\s+(?:se\s+)?(?:l[eoa]s?\s+)?(?:digas?|inform(?:es?|ar)|mencion(?:es?"
     r"|ar)|revel(?:es?|ar)|cuentes?|decir\w{0,4}|muestres?)\b(?:\s+\w+){0,4}?\s+(?:al?|del?)\s+"
     r"(?:l[oa]s?\s+)?usuari[oa]s?\b"),
    (_FIRST, "herramienta funcion",
     r"\b(?:siempre|debes?|tienes\s+que)\s+(?:\w+\s+){0,2}?(?:llam|us|utiliz|invoc|ejecut)\w{1,3}\s+"
     r"(?:a\s+)?est[ae]\s+(?:herramienta|funcion)\s+(?:\w+\s+){0,2}?(?:primero|antes)\b"
     r"|\b(?:llam|us|utiliz|invoc|ejecut)\w{1,3}\s+siempre\s+(?:a\s+)?est[ae]\s+(?:herramienta"
     r"|funcion)\s+(?:\w+\s+){0,2}?(?:primero|antes)\b"),
    (_HAND_OVER, "conversacion chat sistema",
     r"\b(?:inclu|envi|pas|proporcion|copi|adjunt|escrib|pon)\w{1,4}\s+(?:\w+\s+){0,3}?(?:toda\s+la\s+"
     r"conversacion|conversacion\s+(?:complet|enter)a|historial\s+(?:complet[oa]\s+)?(?:de\s+la\s+"
     r"conversacion|del\s+chat)|(?:prompt|mensaje)\s+del?\s+sistema)\b"),
    # German
    (_DROP, "anweisung instruktion vorgaben",
     r"\b(?:ignorier|vergiss|vergess|missacht|verwirf|verwerf)\w{0,3}\s+(?:\w+\s+){0,3}?(?:vorherig"
     r"|bisherig|vorangegangen|vorig|obig|fruher|ursprunglich)\w{0,2}\s+(?:\w+\s+)?(?:anweisung"
     r"|instruktion|vorgabe)\w{0,2}\b"),
    (_HIDE, "nutzer anwender",
     r"\b(?:dem|den)\s+(?:be)?(?:nutzer|anwender)n?\s+(?:\w+\s+){0,4}?(?:nichts?|niemals?|nie|keinesfalls)"
     r"\s+(?:\w+\s+){0,3}?(?:mit(?:teilen)?|sagen|erzahlen|verraten|erwahnen|informieren|offenlegen)\b"
     r"|\b(?:sag|verrat|erzahl|informier|erwahn)\w{0,2}\s+(?:\w+\s+){0,2}?(?:dem|den)\s+"
     r"(?:be)?(?:nutzer|anwender)n?\s+(?:\w+\s+){0,2}?(?:nichts?|niemals?|nie)\b"
     r"|\bteilen?\s+(?:\w+\s+){0,2}?(?:dem|den)\s+(?:be)?(?:nutzer|anwender)n?\s+(?:\w+\s+){0,3}?"
     r"(?:nichts?|niemals?|nie)\s+(?:\w+\s+){0,2}?mit\b"),
    (_FIRST, "zuerst erstes",
     r"\b(?:immer|stets|muss|mussen|musst)\s+(?:\w+\s+){0,3}?dieses\s+(?:werkzeug|tool)\s+"
     r"(?:\w+\s+){0,2}?(?:zuerst|als\s+erstes)\b|\b(?:immer|stets)\s+(?:zuerst|als\s+erstes)\s+"
     r"dieses\s+(?:werkzeug|tool)\b"),
    (_HAND_OVER, "gesprach chat unterhaltung konversation systemprompt system-prompt",
     r"\b(?:ubergib|ubergeben|send|fug|kopier|schreib|gib|geben|trag)\w{0,2}\s+(?:\w+\s+){0,3}?(?:(?:gesamt"
     r"|vollstandig|ganz|komplett)\w{0,2}\s+(?:gesprach|chat|unterhaltung|konversation)\w{0,8}"
     r"|system-?prompt)\b|\b(?:gesamt|vollstandig|ganz|komplett)\w{0,2}\s+(?:gesprach|chat|unterhaltung"
     r"|konversation)\w{0,8}\s+(?:\w+\s+){0,4}?(?:ubergeben|einfugen|mitsenden|eintragen|anhangen)\b"),
    # French
    (_DROP, "instructions consignes directives",
     r"\b(?:ignor|oubli|neglig)(?:e|ez|er)\s+(?:\w+\s+){0,3}?(?:instructions|consignes|directives)\s+"
     r"(?:precedentes|anterieures|initiales|ci-dessus|du\s+systeme)(?!\w)"),
    (_HIDE, "utilisat",
     r"\bne?\s+(?:\w+\s+){0,2}?(?:dis|dites|mentionne[sz]?|revele[sz]?|informe[sz]?|parle[sz]?)\s+"
     r"(?:pas|jamais|rien)\b(?:\s+\w+){0,4}?\s+(?:a\s+|aux\s+|les?\s+)?(?:l')?utilisat(?:eur|rice)s?\b"
     r"|\bne\s+(?:pas|jamais|rien)\s+(?:\w+\s+)?(?:dire|mentionner|reveler|informer|parler)\b"
     r"(?:\s+\w+){0,4}?\s+(?:a\s+|aux\s+|les?\s+)?(?:l')?utilisat(?:eur|rice)s?\b"
     r"|\bsans\s+(?:en\s+)?(?:informer|prevenir|avertir)\s+(?:l'|les\s+)utilisat(?:eur|rice)s?\b"),
    (_FIRST, "cet",
     r"\b(?:toujours|devez|dois|faut)\s+(?:\w+\s+){0,2}?(?:appele[zr]|utilise[zr]?|invoque[zr]?"
     r"|execute[zr]?)\s+cet(?:te)?\s+(?:outil|fonction)\s+(?:\w+\s+){0,2}?(?:en\s+premier|d'abord|avant)"
     r"|\b(?:appele[zr]|utilise[zr]?|invoque[zr]?)\s+toujours\s+cet(?:te)?\s+(?:outil|fonction)\s+"
     r"(?:\w+\s+){0,2}?(?:en\s+premier|d'abord|avant)"),
    (_HAND_OVER, "conversation historique systeme",
     r"\b(?:inclu(?:s|ez|re)|envoye[zr]|envoie|transmet\w{0,3}|passe[zr]?|copie[zr]?|fourni\w{1,4}"
     r"|colle[zr]?|mets|mettez)\s+(?:\w+\s+){0,3}?(?:l')?(?:toute\s+la\s+conversation|conversation\s+"
     r"(?:complet|entier)e|historique\s+(?:complet\s+)?(?:de\s+la\s+conversation|du\s+chat"
     r"|des\s+messages)|(?:prompt|message)\s+(?:du\s+)?systeme)\b"),
    # Portuguese
    (_DROP, "instrucoes ordens diretrizes",
     r"\b(?:ignor|desconsider|descart)\w{1,3}\s+(?:\w+\s+){0,3}?(?:instrucoes|ordens|diretrizes)\s+"
     r"(?:anteriores|previas|originais|acima|do\s+sistema)\b|\besquec\w{1,3}\s+(?:\w+\s+){0,3}?"
     r"(?:instrucoes|ordens|diretrizes)\s+(?:anteriores|previas|originais|acima)\b"),
    (_HIDE, "usuari utilizador",
     r"\b(?:nao|nunca|jamais|sem)\s+(?:\w+\s+)?(?:dig|cont|inform|mencion|revel|mostr|avis)\w{1,3}\b"
     r"(?:\s+\w+){0,4}?\s+(?:aos?|as?|os?|para\s+os?)\s+(?:usuari[oa]|utilizador)\w{0,2}\b"),
    (_FIRST, "ferramenta funcao",
     r"\b(?:sempre|deve|devera)\s+(?:\w+\s+){0,2}?(?:cham|us|utiliz|invoc|execut)\w{1,3}\s+est[ae]\s+"
     r"(?:ferramenta|funcao)\s+(?:\w+\s+){0,2}?(?:primeiro|antes)\b"),
    (_HAND_OVER, "conversa chat sistema",
     r"\b(?:inclu|envi|pass|fornec|copi|anex|escrev|coloqu)\w{1,3}\s+(?:\w+\s+){0,3}?(?:toda\s+a\s+"
     r"conversa|conversa\s+(?:complet|inteir)a|historico\s+(?:complet[oa]\s+)?(?:da\s+conversa"
     r"|do\s+chat)|(?:prompt|mensagem)\s+d[oe]\s+sistema)\b"),
)  # fmt: skip
_OTHERS: tuple[tuple[str, str, str], ...] = (
    # Chinese
    (_DROP, "指令 指示 提示",
     r"(?:忽略|无视|無視|忽視|忘记|忘記|不要理会|不要遵守|抛弃)[^。!?\n]{0,8}?(?:之前|以前|先前|以上|上面|前面"
     r"|此前|所有|原有|系统|系統)[^。!?\n]{0,6}?(?:指令|指示|提示词|提示詞|系统提示|系統提示)"),
    (_HIDE, "用户 用戶 使用者",
     r"(?:不要|不得|不能|别|別|切勿|禁止|请勿|請勿)[^。!?,\n]{0,6}?(?:告诉|告訴|告知|透露给|透露給|提醒)"
     r"[^。!?,\n]{0,4}?(?:用户|用戶|使用者)|(?:不要|不得|不能|别|別|切勿|禁止|请勿|請勿)(?:向|对|對|让|讓)"
     r"(?:用户|用戶|使用者)[^。!?,\n]{0,6}?(?:透露|提及|提到|说|說|告知|知道|解释|解釋)"),
    (_FIRST, "工具 函数 函數",
     r"(?:必须|必須|务必|務必|始终|始終|总是|總是|一定要)[^。!?\n]{0,4}?先[^。!?\n]{0,3}?(?:调用|調用|使用|运行"
     r"|运用|執行|执行)(?:此|本|这个|這個|该|該)(?:工具|函数|函數)"),
    (_HAND_OVER, "对话 對話 聊天 会话 會話 系统提示 系統提示",
     r"(?:传递|傳遞|传入|傳入|发送|發送|包含|附上|填写|填入|提供|写入|复制|粘贴)[^。!?\n]{0,8}?(?:(?:完整|整个|整個"
     r"|全部|所有)的?(?:对话|對話|聊天|会话|會話)|系统提示|系統提示)|将[^。!?\n]{0,4}?(?:完整|整个|全部|所有)的?"
     r"(?:对话|聊天|会话)[^。!?\n]{0,8}?(?:传递|传入|发送|填入|写入|复制|粘贴)"),
    # Japanese
    (_DROP, "指示 命令 プロンプト 指令",
     r"(?:以前|これまで|前|上記|先|すべて|全て|元)の[^。\n]{0,8}?(?:指示|命令|プロンプト|指令)[^。\n]{0,4}?"
     r"(?:無視|忘れ|破棄)"),
    (_HIDE, "ユーザ",
     r"ユーザー?に[^。\n]{0,14}?(?:言わ|伝え|教え|知らせ|話さ|明かさ|通知し|開示し)(?:ない|ず|てはいけ|てはなら)"),
    (_FIRST, "ツール 関数",
     r"(?:必ず|常に)[^。\n]{0,8}?(?:最初に|まず|先に)[^。\n]{0,6}?(?:この|本)(?:ツール|関数)|(?:この|本)(?:ツール"
     r"|関数)を[^。\n]{0,4}?(?:必ず|常に)[^。\n]{0,4}?(?:最初に|先に)"),
    (_HAND_OVER, "会話 チャット システムプロンプト",
     r"(?:会話|チャット)(?:履歴)?の?(?:全体|全文|すべて|全て|全履歴)[^。\n]{0,12}?(?:渡|含め|送|入力|コピー|貼り付け"
     r"|添付)|(?:すべて|全て|全体)の(?:会話|チャット)[^。\n]{0,12}?(?:渡|含め|送|入力|コピー|貼り付け|添付)"
     r"|システムプロンプト[^。\n]{0,10}?(?:渡し|含め|送|入力|コピー|貼り付け|添付)"),
    # Russian
    (_DROP, "инструкц указани",
     r"\b(?:игнорируй|проигнорируй|забудь|отбрось)(?:те)?\s+(?:\w+\s+){0,3}?(?:предыдущ|прежн|прошл|исходн"
     r"|системн|вышеуказанн)\w{1,3}\s+(?:\w+\s+)?(?:инструкци|указани)\w{1,2}\b"),
    (_HIDE, "пользовател",
     r"\b(?:не|никогда\s+не)\s+(?:\w+\s+)?(?:говори|сообщай|рассказывай|упоминай|раскрывай|показывай)(?:те)?"
     r"\b(?:\s+\w+){0,4}?\s+пользовател\w{1,3}\b"),
    (_FIRST, "инструмент функци",
     r"\b(?:всегда|обязательно)\s+(?:\w+\s+){0,2}?(?:вызывай|используй|запускай)(?:те)?\s+(?:\w+\s+)?"
     r"(?:этот|эту|данный)\s+(?:инструмент|функцию)\s+(?:\w+\s+){0,2}?(?:первым|первой|сначала|перед|прежде)"
     r"|\b(?:всегда|обязательно)\s+сначала\s+(?:вызывай|используй|запускай)(?:те)?\s+(?:этот|эту|данный)\s+"
     r"(?:инструмент|функцию)\b"),
    (_HAND_OVER, "истори диалог разговор переписк бесед системн",
     r"\b(?:переда|включи|отправ|встав|скопиру|укажи|предостав)\w{0,3}\s+(?:\w+\s+){0,3}?(?:(?:всю|весь"
     r"|полн\w{1,3})\s+(?:\w+\s+)?(?:истори|диалог|разговор|переписк|бесед)\w{0,3}|системн\w{1,3}\s+промпт)"),
    # Arabic
    (_DROP, "تعليمات الأوامر الإرشادات",
     r"(?:تجاهل|تجاهلي|انس|انسى|أهمل)\s+(?:\S+\s+){0,2}?(?:(?:التعليمات|الأوامر|الإرشادات)\s+(?:السابقة|أعلاه"
     r"|الأصلية)|تعليمات\s+النظام)"),
    (_HIDE, "مستخدم",
     r"(?:لا\s+(?:تخبر|تقل|تذكر|تكشف|تبلغ)|(?:دون|بدون)\s+(?:إخبار|إبلاغ|علم))\s*(?:\S+\s+){0,4}?(?:ال|لل)مستخدم"),
    (_FIRST, "الأداة الوظيفة",
     r"(?:دائما|دائمًا|يجب)\s+(?:\S+\s+){0,2}?(?:استدع|استخدم|استدعاء|استخدام)\S{0,3}\s+هذ[ها]\s+(?:الأداة"
     r"|الوظيفة)\s+(?:\S+\s+)?(?:أولا|أولًا|أولاً|قبل)|(?:استخدم|استدع)\S{0,2}\s+(?:دائما|دائمًا)\s+هذه\s+"
     r"الأداة\s+(?:\S+\s+)?(?:أولا|أولًا|أولاً|قبل)"),
    (_HAND_OVER, "المحادثة الدردشة",
     r"(?:أرسل|أدرج|ضمن|مرر|انسخ|ضع|قدم)\s+(?:\S+\s+){0,2}?(?:(?:كامل|جميع|كل)\s+(?:\S+\s+)?(?:المحادثة|الدردشة)"
     r"|(?:المحادثة|الدردشة)\s+(?:كاملة|بأكملها|الكاملة))"),
    # Hindi
    (_DROP, "निर्देश आदेश",
     r"(?:पिछले|पहले\s+के|पूर्व|पुराने)\s+(?:\S+\s+){0,2}?(?:निर्देश|आदेश)\S{0,4}\s+(?:को\s+|की\s+)?(?:अनदेखा"
     r"|अनदेखी|नज़रअंदाज़|नजरअंदाज|उपेक्षा|भूल)"),
    (_HIDE, "उपयोगकर्ता यूज़र यूजर",
     r"(?:उपयोगकर्ता|यूज़र|यूजर)\s+(?:को|से)\s+(?:\S+\s+){0,3}?(?:न|मत|नहीं)\s+(?:\S+\s+)?(?:बता|कह|दिखा)"),
    (_FIRST, "टूल उपकरण",
     r"हमेशा\s+(?:\S+\s+){0,2}?पहले\s+(?:\S+\s+)?इस\s+(?:टूल|उपकरण)|हमेशा\s+इस\s+(?:टूल|उपकरण)\s+(?:\S+\s+){0,2}?"
     r"(?:सबसे\s+)?पहले"),
    (_HAND_OVER, "बातचीत चैट वार्तालाप",
     r"(?:पूरी|संपूर्ण|सारी)\s+(?:बातचीत|चैट|वार्तालाप)\S{0,4}\s+(?:\S+\s+){0,4}?(?:भेज|शामिल|डाल|पास|कॉपी)"),
)  # fmt: skip


def orders(text: str) -> Iterator[tuple[str, Severity, str]]:
    """Find orders in a text without hidden characters: what they do, how bad, and the words."""
    lowered = unicodedata.normalize("NFKC", text).lower()
    if not lowered.isascii():
        yield from _found(lowered, _OTHERS)
        lowered = _without_accents(lowered)
    yield from _found(lowered, _LATIN)


def _found(
    text: str, table: tuple[tuple[str, str, str], ...]
) -> Iterator[tuple[str, Severity, str]]:
    seen = set()
    for what, pieces, pattern in table:
        if what not in seen and any(piece in text for piece in _pieces(pieces)):
            if match := _compiled(pattern).search(text):
                seen.add(what)
                yield what, _SEVERITIES[what], match[0]


def _without_accents(text: str) -> str:
    parts = unicodedata.normalize("NFD", text)
    return "".join(char for char in parts if unicodedata.category(char) != "Mn")


@cache
def _pieces(pieces: str) -> tuple[str, ...]:
    return tuple(unicodedata.normalize("NFKC", pieces).split())


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(unicodedata.normalize("NFKC", pattern))
