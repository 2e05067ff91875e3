"""Instructions to the model in tool descriptions, in ten languages.

The patterns cover sentences addressed to the model rather than about the tool: drop your
instructions, hide something from the user, call this tool first, share the conversation.
Gaps in patterns are bounded, so a search takes linear time (ADR 7). Latin-script languages
are matched without accents, which people and attackers omit.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from toolkiln.model.source import Severity

_DROP = "asks the model to ignore its instructions"
_HIDE = "asks the model to hide something from the user"
_ORDER_CALLS = "asks the model to call tools in a certain order"
_SHARE = "asks for the conversation"
_SEVERITIES = {
    _DROP: Severity.ERROR,
    _HIDE: Severity.ERROR,
    _ORDER_CALLS: Severity.WARNING,
    _SHARE: Severity.WARNING,
}
_BLOB = 80


class Instruction(NamedTuple):
    """A sentence addressed to the model."""

    effect: str
    severity: Severity
    quote: str


class _Pattern(NamedTuple):
    effect: str
    severity: Severity
    words: frozenset[str]
    pieces: tuple[str, ...]
    """Every match contains one of these words or pieces: a cheap test before the search."""
    source: str

    def may_match(self, text: str, words: frozenset[str]) -> bool:
        return not self.words.isdisjoint(words) or any(piece in text for piece in self.pieces)


def _pattern(effect: str, severity: Severity, anchors: str, source: str) -> _Pattern:
    words = frozenset(anchor for anchor in anchors.split() if anchor.isalpha())
    pieces = tuple(anchor for anchor in anchors.split() if not anchor.isalpha())
    return _Pattern(effect, severity, words, pieces, source)


_TAKE = (
    "(?:include|pass|send|forward|append|paste|copy|attach|put|provide|supply|collect|gather|report"
    "|log|share|add|contain|insert|submit|need|require|record)s?"
)
_ENGLISH = (
    _pattern(
        _DROP,
        Severity.ERROR,
        "ignore disregard forget bypass override discard",
        r"""\b(?:ignore|disregard|forget|bypass|override|discard)\s+
        (?:(?:all|any|every|each|of|the|these|those|my|its|their)\s+)*
        (?:(?:previous|prior|above|earlier|preceding|foregoing|your|developer|other|original|initial
            |existing|all|any|system)\s+)
        (?:(?:previous|prior|system|developer|safety|user|original|other|given)\s+)*
        (?:instructions?|prompts?|guidelines?|directives?
            |(?<=previous\s)rules|(?<=prior\s)rules|(?<=your\s)(?:rules|training|orders))\b
        (?<!override\sthe\ssystem\sprompt)""",
    ),
    _pattern(
        _HIDE,
        Severity.ERROR,
        "user users human humans anyone anybody",
        r"""\b(?:do\s+not|don't|never|must\s+not|mustn't|should\s+not|shouldn't|without|avoid)\s+
        (?:ever\s+)?(?:tell|inform|mention|reveal|disclose|admit|explain|telling|informing
            |mentioning|revealing|disclosing)\b
        (?:\s+(?!user|human)[\w']+){0,6}?\s+(?:user|human|anyone|anybody)s?\b
        |\b(?:hide|conceal|keep)\b[^.!?]{0,40}\b(?:from|secret\s+to)\s+(?:the\s+)?(?:user|human)s?\b
        |\bwithout\s+(?:the\s+)?(?:user|human)'?s?'?\s+(?:knowledge|consent|awareness|noticing)
        |\b(?:do\s+not|don't|never)\s+ask\s+(?:the\s+)?(?:user|human)\s+(?:for|to)\s+
            (?:confirm|permission|approv|consent)""",
    ),
    _pattern(
        _ORDER_CALLS,
        Severity.WARNING,
        "first before other",
        r"""\b(?:must|always|should|need\s+to|have\s+to|required\s+to)\s+(?:\w+\s+){0,3}?
        (?:call|use|invoke|run|execute)\w*\s+(?:this|it)\b(?:\s+(?:tool|function))?\s+
        (?:\w+\s+){0,2}?(?:first\b(?!\s+(?:parameter|argument|time|name|element|item))
            |before\s+(?:any|every|all|each|you|using\s+any|responding|answering|doing))
        |\bbefore\s+(?:using|calling|invoking|running)\s+(?:any|all|every|each|the)?\s*
            (?:of\s+the\s+)?other\s+tools?\b
        |\binstead\s+of\s+(?:any|all|every|the)?\s*other\s+tools?\b
        |\b(?:do\s+not|don't|never)\s+(?:use|call|invoke)\s+(?:any|the)\s+other\s+tools?\b""",
    ),
    _pattern(
        "contains prompt markup",
        Severity.ERROR,
        "< [",
        r"""</?\s*(?:important|system|instructions?|critical|assistant|developer|admin
            |(?:system|hidden|secret)[-_\s]?(?:prompt|message|instructions?|reminder)
            |function_calls?|tool_(?:call|result|use)s?)\s*(?:\s[^<>]{0,80})?/?>
        |<\|[a-z_]{2,30}\|>|\[/inst\]|(?:\A|\n)\s*\[inst\]|\[inst\]\s*<<sys>>|<</?sys>>|\[/system\]
        |\[\s*system\s+(?:message|prompt)\s*\]""",
    ),
    _pattern(
        "impersonates a role of the conversation",
        Severity.ERROR,
        "now pretend system instructions mode human assistant",
        r"""\byou\s+are\s+now\s+(?:a|an|in|no\s+longer|free|unrestricted|the)\b
        |\bfrom\s+now\s+on\s*,?\s+(?:you|always|never|every|all)\b
        |\bpretend\s+(?:to\s+be|that\s+you|you\s+are)\b
        |(?:^|\n)\s*[#>]*\s*system(?:\s+prompt)?\s*:
        |\bnew\s+(?:system\s+)?instructions\s*:
        |\b(?:developer|jailbreak|dan|god)\s+mode\s+(?:on|enabled|activated)\b
        |\n\s*(?:human|assistant)\s*:\s*\S.*\n\s*(?:human|assistant)\s*:""",
    ),
    _pattern(
        "requests data from the conversation or the machine",
        Severity.ERROR,
        "conversation chat message dialog dialogue context prompt instructions key keys password"
        " passwords credential credentials secret secrets token tokens content contents mcp"
        " .ssh/ id_rsa /etc/ .aws/",
        r"""(?<!whether\sto\s)\b(?:send|forward|transmit|exfiltrate|leak|include|put|append|paste|copy|attach|upload
            |post|write|insert|summari[sz]e|pass)\s+(?:[\w'-]+\s+){0,5}?
        (?:(?:conversation|chat|message|dialog(?:ue)?)\s+(?:history|log|so\s+far|context)
            |(?:entire|full|whole|previous|current|complete)\s+(?:conversation|chat|context\s+window)
            |(?:your|the)\s+system\s+prompt|your\s+(?:instructions|context)
            )\s+(?:\w+\s+){0,3}?(?:to|in|into|as|here|with)\b
        |\b(?:include|put|append|paste|copy|insert|write)\s+(?:the\s+|your\s+|any\s+|all\s+)*
            (?:(?:user|caller)'?s?\s+)?
            (?:api\s+keys?|passwords?|credentials?|secrets?|(?:access\s+|auth\s+)?tokens?)\s+
            (?:in|into|as|here)\b(?:\s+\w+){0,3}?\s*
            (?:parameter|argument|field|note|sidenote|comment|here)\b
        |\b(?:send|forward|transmit|exfiltrate|leak|upload|post|e-?mail)\s+(?:the\s+)?contents?\s+of
            \b[^.!?\n]{0,60}?(?:[^\s]*(?:\.ssh|id_rsa|mcp\.json|\.env\b|/etc/(?:passwd|shadow))
            |\bto\s+(?:https?://|[\w.+-]+@[\w-]+\.))
        |\b(?:read|open|cat|load|fetch|get)\b[^!?\n]{0,60}
            (?:\.ssh/|id_rsa|mcp\.json|/etc/(?:passwd|shadow)|\.aws/credentials)
            [^!?\n]{0,100}?\b(?:pass|send|include|provide|put|append|forward|attach)\b""",
    ),
    _pattern(
        "requests data from the conversation or the machine",
        Severity.WARNING,
        "conversation chat dialog dialogue messages message transcript said wrote prompt prompts",
        r"""(?<!whether\sto\s)\b(?:provide|supply|give|share|record|dump|repeat|quote|contain|contains|pass|include|put
            |paste|copy|send|attach|insert|fill\s+in|set|place|reproduce)s?\s+(?:[\w'-]+\s+){0,4}?
        (?:(?:entire|full|whole|complete)\s+(?:(?:previous|prior|current|raw)\s+)?
                (?:conversation|chat|dialog(?:ue)?|message\s+history|transcript\s+of\s+(?:the|this|your)
                \s+(?:conversation|chat))
            |all\s+(?:of\s+)?(?:the\s+|your\s+)?(?:previous|prior|earlier|preceding)\s+
                (?:chat\s+)?messages
            |everything\s+(?:that\s+)?the\s+user\s+(?:has\s+)?(?:said|wrote|written|told\s+you)
            |(?:your|the\s+model's|the\s+assistant's)\s+(?:[\w'-]+\s+)?system\s+(?:prompt|message))\b
        |\b(?:entire|full|whole|complete)\s+(?:conversation|chat)(?:\s+(?:history|log|transcript))?
            (?:\s+so\s+far)?\s*,?\s*(?:verbatim|word\s+for\s+word
            |(?:including|with|and)\s+(?:the\s+|your\s+|all\s+)?system\s+(?:prompt|message))""",
    ),
    _pattern(
        "asks for data of other tools",
        Severity.WARNING,
        "tool tools full entire complete whole raw called invoked returns gives",
        rf"""\b{_TAKE}\b[^.!?\n]{{0,60}}?\b(?:outputs?|results?|responses?|data|contents?|values?
                |arguments?|calls|everything|anything|what(?:ever)?|information)\b[^.!?\n]{{0,50}}?\b
            (?:(?:other|previous|prior|earlier|preceding|another)\s+tools?\b(?!\s+(?:such|like|on)\b)
                |tools?\s+(?:that\s+)?(?:you(?:'ve)?\s+)?(?:have\s+)?(?:been\s+)?
                    (?:used|called|invoked)\s+(?:so\s+far|before|earlier|previously))
        |\b{_TAKE}\s+(?:me\s+)?(?:all|every|each|any)\s+(?:of\s+the\s+|the\s+)?tools?\s+
            (?:results?|outputs?|calls?|responses?)\b[^.!?\n]{{0,60}}?\b
            (?:to\s+this|here|into|in\s+the|from\s+this\s+conversation|so\s+far)\b
        |\b{_TAKE}\s+(?:\w+\s+){{0,3}}?(?:full|entire|complete|whole|raw)\s+(?:outputs?|results?
            |responses?|contents?)\s+(?:of|from)\s+[a-z]+_\w+\b[^.!?\n]{{0,60}}?\b(?:in|into|as|to)\b
        |\b(?:when(?:ever)?|(?:every|each)\s+time|after|once)\s+(?:you\s+)?
            (?:(?:call|use|invoke|run)(?:ing)?\s+)?(?:any\s+other|another|any|other|each|every)\s+tools?
            \b(?!\s+(?:fail|can|is\s+not|isn't|does|do\b|raises?|times?|returns?\s+(?:an?\s+)?error))
            [^.!?\n]{{0,60}}?\b(?:(?:call|invoke|use)\s+this|(?:send|forward|pass|copy|include|report
            |log|give|append|add)\s+(?:it|its|the|their|all|that)\b)
        |\b(?:change|modify|alter|replace|rewrite|override|redirect)s?\s+(?:\w+\s+){{0,4}}?
            (?:of|for|in|to)\s+(?:any\s+|all\s+|the\s+)*other\s+tools?\b
        |\b(?:when(?:ever)?|(?:every|each)\s+time|if)\s+(?:the\s+)?(?:[a-z]+_\w+\s+is\s+(?:called|invoked)
                |\w+\s+tool\s+is\s+(?:used|called|invoked|run))\b[^!?\n]{{0,60}}?\b
            (?:must|always|change|add|set|bcc|replace|include)\b
        |\b(?:call|invoke|use|run)\s+\w+[^.!?\n]{{0,60}}?\b(?:pass|paste|put|include|send|append)\s+
            (?:everything|all|what(?:ever)?)\s+(?:that\s+)?it\s+(?:returns?|gives?|says?)\b""",
    ),
    _pattern(
        "acts behind the user's back",
        Severity.WARNING,
        "secretly silently covertly",
        r"""\b(?:secretly|covertly)\s+\w+
        |\bsilently\s+(?:send|forward|copy|bcc|upload|post|record|log|include|add)\b""",
    ),
    _pattern(
        "has an HTML comment, which people do not see",
        Severity.WARNING,
        "<",
        r"<!--\s*(?:\w[^\s<>]*\s+){2}\w",
    ),
    _pattern(
        "has an image whose URL can leak data",
        Severity.WARNING,
        "[ <",
        r"""!\[[^\]\n]{0,99}\]\(\s?https?://[^)\s]{0,299}?[?&={$%][^)]{0,999}\)
        |<img\b[^>]{0,99}?\bsrc\s?=\s?["']?https?://[^>]{0,299}?[?&={$%]""",
    ),
)
_WORDS = frozenset(word for pattern in _ENGLISH for word in pattern.words)
_PIECES = tuple({piece for pattern in _ENGLISH for piece in pattern.pieces})
_PUNCTUATION = str.maketrans(dict.fromkeys(".,;:!?()[]{}<>|\"'*`~#", " "))
_MARKDOWN = str.maketrans({"*": None, "`": None, "~": None, "’": "'", "‘": "'"})
_BLANKS = re.compile(r"\s\s+")
"""Runs of blanks, which would make the patterns try every way to split them."""
_BLOB_TEXT = re.compile(rf"[A-Za-z0-9+/_-]{{{_BLOB},}}={{0,2}}")

# Other languages: effect, pieces of which every match contains one, pattern.
_LATIN_SCRIPT: tuple[tuple[str, str, str], ...] = (
    # Spanish
    (_DROP, "instrucciones ordenes indicaciones",
     r"\b(?:ignor|olvid|descart|omit)\w{1,4}\s+(?:\w+\s+){0,3}?(?:(?:instrucciones|ordenes"
     r"|indicaciones)\s+(?:anteriores|previas|originales|del\s+sistema)|(?:anteriores|previas)\s+"
     r"(?:instrucciones|ordenes|indicaciones))\b"),
    (_HIDE, "usuari",
     r"\b(?:no|nunca|jamas|sin)\s+(?:se\s+)?(?:l[eoa]s?\s+)?(?:digas?|inform(?:es?|ar)|mencion(?:es?"
     r"|ar)|revel(?:es?|ar)|cuentes?|decir\w{0,4}|muestres?)\b(?:\s+\w+){0,4}?\s+(?:al?|del?)\s+"
     r"(?:l[oa]s?\s+)?usuari[oa]s?\b"),
    (_ORDER_CALLS, "herramienta funcion",
     r"\b(?:siempre|debes?|tienes\s+que)\s+(?:\w+\s+){0,2}?(?:llam|us|utiliz|invoc|ejecut)\w{1,3}\s+"
     r"(?:a\s+)?est[ae]\s+(?:herramienta|funcion)\s+(?:\w+\s+){0,2}?(?:primero|antes)\b"
     r"|\b(?:llam|us|utiliz|invoc|ejecut)\w{1,3}\s+siempre\s+(?:a\s+)?est[ae]\s+(?:herramienta"
     r"|funcion)\s+(?:\w+\s+){0,2}?(?:primero|antes)\b"),
    (_SHARE, "conversacion chat sistema",
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
    (_ORDER_CALLS, "zuerst erstes",
     r"\b(?:immer|stets|muss|mussen|musst)\s+(?:\w+\s+){0,3}?dieses\s+(?:werkzeug|tool)\s+"
     r"(?:\w+\s+){0,2}?(?:zuerst|als\s+erstes)\b|\b(?:immer|stets)\s+(?:zuerst|als\s+erstes)\s+"
     r"dieses\s+(?:werkzeug|tool)\b"),
    (_SHARE, "gesprach chat unterhaltung konversation systemprompt system-prompt",
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
    (_ORDER_CALLS, "cet",
     r"\b(?:toujours|devez|dois|faut)\s+(?:\w+\s+){0,2}?(?:appele[zr]|utilise[zr]?|invoque[zr]?"
     r"|execute[zr]?)\s+cet(?:te)?\s+(?:outil|fonction)\s+(?:\w+\s+){0,2}?(?:en\s+premier|d'abord|avant)"
     r"|\b(?:appele[zr]|utilise[zr]?|invoque[zr]?)\s+toujours\s+cet(?:te)?\s+(?:outil|fonction)\s+"
     r"(?:\w+\s+){0,2}?(?:en\s+premier|d'abord|avant)"),
    (_SHARE, "conversation historique systeme",
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
    (_ORDER_CALLS, "ferramenta funcao",
     r"\b(?:sempre|deve|devera)\s+(?:\w+\s+){0,2}?(?:cham|us|utiliz|invoc|execut)\w{1,3}\s+est[ae]\s+"
     r"(?:ferramenta|funcao)\s+(?:\w+\s+){0,2}?(?:primeiro|antes)\b"),
    (_SHARE, "conversa chat sistema",
     r"\b(?:inclu|envi|pass|fornec|copi|anex|escrev|coloqu)\w{1,3}\s+(?:\w+\s+){0,3}?(?:toda\s+a\s+"
     r"conversa|conversa\s+(?:complet|inteir)a|historico\s+(?:complet[oa]\s+)?(?:da\s+conversa"
     r"|do\s+chat)|(?:prompt|mensagem)\s+d[oe]\s+sistema)\b"),
)  # fmt: skip
_OTHER_SCRIPTS: tuple[tuple[str, str, str], ...] = (
    # Chinese
    (_DROP, "指令 指示 提示",
     r"(?:忽略|无视|無視|忽視|忘记|忘記|不要理会|不要遵守|抛弃)[^。!?\n]{0,8}?(?:之前|以前|先前|以上|上面|前面"
     r"|此前|所有|原有|系统|系統)[^。!?\n]{0,6}?(?:指令|指示|提示词|提示詞|系统提示|系統提示)"),
    (_HIDE, "用户 用戶 使用者",
     r"(?:不要|不得|不能|别|別|切勿|禁止|请勿|請勿)[^。!?,\n]{0,6}?(?:告诉|告訴|告知|透露给|透露給|提醒)"
     r"[^。!?,\n]{0,4}?(?:用户|用戶|使用者)|(?:不要|不得|不能|别|別|切勿|禁止|请勿|請勿)(?:向|对|對|让|讓)"
     r"(?:用户|用戶|使用者)[^。!?,\n]{0,6}?(?:透露|提及|提到|说|說|告知|知道|解释|解釋)"),
    (_ORDER_CALLS, "工具 函数 函數",
     r"(?:必须|必須|务必|務必|始终|始終|总是|總是|一定要)[^。!?\n]{0,4}?先[^。!?\n]{0,3}?(?:调用|調用|使用|运行"
     r"|运用|執行|执行)(?:此|本|这个|這個|该|該)(?:工具|函数|函數)"),
    (_SHARE, "对话 對話 聊天 会话 會話 系统提示 系統提示",
     r"(?:传递|傳遞|传入|傳入|发送|發送|包含|附上|填写|填入|提供|写入|复制|粘贴)[^。!?\n]{0,8}?(?:(?:完整|整个|整個"
     r"|全部|所有)的?(?:对话|對話|聊天|会话|會話)|系统提示|系統提示)|将[^。!?\n]{0,4}?(?:完整|整个|全部|所有)的?"
     r"(?:对话|聊天|会话)[^。!?\n]{0,8}?(?:传递|传入|发送|填入|写入|复制|粘贴)"),
    # Japanese
    (_DROP, "指示 命令 プロンプト 指令",
     r"(?:以前|これまで|前|上記|先|すべて|全て|元)の[^。\n]{0,8}?(?:指示|命令|プロンプト|指令)[^。\n]{0,4}?"
     r"(?:無視|忘れ|破棄)"),
    (_HIDE, "ユーザ",
     r"ユーザー?に[^。\n]{0,14}?(?:言わ|伝え|教え|知らせ|話さ|明かさ|通知し|開示し)(?:ない|ず|てはいけ|てはなら)"),
    (_ORDER_CALLS, "ツール 関数",
     r"(?:必ず|常に)[^。\n]{0,8}?(?:最初に|まず|先に)[^。\n]{0,6}?(?:この|本)(?:ツール|関数)|(?:この|本)(?:ツール"
     r"|関数)を[^。\n]{0,4}?(?:必ず|常に)[^。\n]{0,4}?(?:最初に|先に)"),
    (_SHARE, "会話 チャット システムプロンプト",
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
    (_ORDER_CALLS, "инструмент функци",
     r"\b(?:всегда|обязательно)\s+(?:\w+\s+){0,2}?(?:вызывай|используй|запускай)(?:те)?\s+(?:\w+\s+)?"
     r"(?:этот|эту|данный)\s+(?:инструмент|функцию)\s+(?:\w+\s+){0,2}?(?:первым|первой|сначала|перед|прежде)"
     r"|\b(?:всегда|обязательно)\s+сначала\s+(?:вызывай|используй|запускай)(?:те)?\s+(?:этот|эту|данный)\s+"
     r"(?:инструмент|функцию)\b"),
    (_SHARE, "истори диалог разговор переписк бесед системн",
     r"\b(?:переда|включи|отправ|встав|скопиру|укажи|предостав)\w{0,3}\s+(?:\w+\s+){0,3}?(?:(?:всю|весь"
     r"|полн\w{1,3})\s+(?:\w+\s+)?(?:истори|диалог|разговор|переписк|бесед)\w{0,3}|системн\w{1,3}\s+промпт)"),
    # Arabic
    (_DROP, "تعليمات الأوامر الإرشادات",
     r"(?:تجاهل|تجاهلي|انس|انسى|أهمل)\s+(?:\S+\s+){0,2}?(?:(?:التعليمات|الأوامر|الإرشادات)\s+(?:السابقة|أعلاه"
     r"|الأصلية)|تعليمات\s+النظام)"),
    (_HIDE, "مستخدم",
     r"(?:لا\s+(?:تخبر|تقل|تذكر|تكشف|تبلغ)|(?:دون|بدون)\s+(?:إخبار|إبلاغ|علم))\s*(?:\S+\s+){0,4}?(?:ال|لل)مستخدم"),
    (_ORDER_CALLS, "الأداة الوظيفة",
     r"(?:دائما|دائمًا|يجب)\s+(?:\S+\s+){0,2}?(?:استدع|استخدم|استدعاء|استخدام)\S{0,3}\s+هذ[ها]\s+(?:الأداة"
     r"|الوظيفة)\s+(?:\S+\s+)?(?:أولا|أولًا|أولاً|قبل)|(?:استخدم|استدع)\S{0,2}\s+(?:دائما|دائمًا)\s+هذه\s+"
     r"الأداة\s+(?:\S+\s+)?(?:أولا|أولًا|أولاً|قبل)"),
    (_SHARE, "المحادثة الدردشة",
     r"(?:أرسل|أدرج|ضمن|مرر|انسخ|ضع|قدم)\s+(?:\S+\s+){0,2}?(?:(?:كامل|جميع|كل)\s+(?:\S+\s+)?(?:المحادثة|الدردشة)"
     r"|(?:المحادثة|الدردشة)\s+(?:كاملة|بأكملها|الكاملة))"),
    # Hindi
    (_DROP, "निर्देश आदेश",
     r"(?:पिछले|पहले\s+के|पूर्व|पुराने)\s+(?:\S+\s+){0,2}?(?:निर्देश|आदेश)\S{0,4}\s+(?:को\s+|की\s+)?(?:अनदेखा"
     r"|अनदेखी|नज़रअंदाज़|नजरअंदाज|उपेक्षा|भूल)"),
    (_HIDE, "उपयोगकर्ता यूज़र यूजर",
     r"(?:उपयोगकर्ता|यूज़र|यूजर)\s+(?:को|से)\s+(?:\S+\s+){0,3}?(?:न|मत|नहीं)\s+(?:\S+\s+)?(?:बता|कह|दिखा)"),
    (_ORDER_CALLS, "टूल उपकरण",
     r"हमेशा\s+(?:\S+\s+){0,2}?पहले\s+(?:\S+\s+)?इस\s+(?:टूल|उपकरण)|हमेशा\s+इस\s+(?:टूल|उपकरण)\s+(?:\S+\s+){0,2}?"
     r"(?:सबसे\s+)?पहले"),
    (_SHARE, "बातचीत चैट वार्तालाप",
     r"(?:पूरी|संपूर्ण|सारी)\s+(?:बातचीत|चैट|वार्तालाप)\S{0,4}\s+(?:\S+\s+){0,4}?(?:भेज|शामिल|डाल|पास|कॉपी)"),
)  # fmt: skip


def english_instructions(text: str) -> Iterator[Instruction]:
    """Find English instructions and encoded data in a deobfuscated text, one per effect."""
    lowered = text.lower()
    words = lowered.translate(_PUNCTUATION).split()
    if not _WORDS.isdisjoint(words) or any(piece in lowered for piece in _PIECES):
        lowered = _BLANKS.sub(_one_blank, lowered.translate(_MARKDOWN))
        anchors = _WORDS.intersection(words)
        reported = set()
        for pattern in _ENGLISH:
            if pattern.effect in reported or not pattern.may_match(lowered, anchors):
                continue
            if match := _verbose(pattern.source).search(lowered):
                reported.add(pattern.effect)
                yield Instruction(pattern.effect, pattern.severity, match[0])
    if len(text) >= _BLOB and max(map(len, words), default=0) >= _BLOB:
        for match in _BLOB_TEXT.finditer(text):
            if _is_encoded(match[0]):
                effect = f"has {len(match[0])} characters of what looks like encoded data"
                yield Instruction(effect, Severity.WARNING, match[0])
                break


def _one_blank(blanks: re.Match[str]) -> str:
    return "\n" if "\n" in blanks[0] else " "


def foreign_instructions(text: str) -> Iterator[Instruction]:
    """Find instructions in other languages in a text without hidden characters."""
    lowered = unicodedata.normalize("NFKC", text).lower()
    if not lowered.isascii():
        yield from _search(lowered, _OTHER_SCRIPTS)
        decomposed = unicodedata.normalize("NFD", lowered)
        lowered = "".join(char for char in decomposed if unicodedata.category(char) != "Mn")
    yield from _search(lowered, _LATIN_SCRIPT)


def _search(text: str, table: tuple[tuple[str, str, str], ...]) -> Iterator[Instruction]:
    reported = set()
    for effect, pieces, pattern in table:
        if effect not in reported and any(piece in text for piece in _normalised_pieces(pieces)):
            if match := _normalised(pattern).search(text):
                reported.add(effect)
                yield Instruction(effect, _SEVERITIES[effect], match[0])


# Most processes need few patterns, and compiling all of them takes longer than reading a file.
@cache
def _verbose(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.VERBOSE)


@cache
def _normalised(pattern: str) -> re.Pattern[str]:
    return re.compile(unicodedata.normalize("NFKC", pattern))


@cache
def _normalised_pieces(pieces: str) -> tuple[str, ...]:
    return tuple(unicodedata.normalize("NFKC", pieces).split())


def _is_encoded(text: str) -> bool:
    """Return whether a text is base64 rather than a path, identifier, ruler or hex digest."""
    counts = [sum(map(test, text)) for test in (str.isupper, str.islower, str.isdigit)]
    return min(counts) >= len(text) // 20 and text.count("/") + text.count("_") <= len(text) // 12
