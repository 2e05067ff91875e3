"""The words of refusals: what services and tools say to a caller who may not do something.

A refusal is what HTTP answers with 401 or 403: the caller is unknown, or may not. Only English
wordings are recognised.
"""

import re

_MAX_REFUSAL = 300
_MAX_ERROR = 2_000
"""Characters of an error that are searched for a refusal."""


def is_refusal(text: str) -> bool:
    """Return whether the text of an error contains a refusal."""
    head = _normal(text[:_MAX_ERROR].strip())
    if _STATUS.search(head) and not OTHER_403.search(head):
        return True
    if _IN_ERROR.search(head) and "invalid grant" not in head:
        return True
    clauses = (head, *_BETWEEN_CLAUSES.split(head))
    return any(_refuses(part, _REFUSAL_IN_ERROR) or _LACKS.search(part) for part in clauses)


def is_only_refusal(text: str) -> bool:
    """Return whether a text is a refusal and nothing else: one sentence, or two."""
    if len(text) > _MAX_REFUSAL or len(_BETWEEN_SENTENCES.findall(text.strip())) >= 2:
        return False
    head = _normal(text.strip())
    lacks = _LACKS.search(head)
    is_about_caller = lacks is not None and _WHO.fullmatch(head[: lacks.start()].rstrip())
    return bool(is_about_caller) or _refuses(head, _REFUSAL)


def _normal(text: str) -> str:
    """Return a text without markup, with `AccessDenied` and `can't` as two words each."""
    text = _MODULE.sub("", text.replace("’", "'"))
    text = _WORD_START.sub(" ", _MARKUP.sub(" ", text))
    for pattern, words in _CONTRACTIONS:
        text = pattern.sub(words, text)
    return text


def _refuses(clause: str, pattern: re.Pattern[str]) -> bool:
    """Return whether a clause begins with a refusal."""
    return bool(pattern.match(clause) or ("require" in clause and _REQUIREMENT.match(clause)))


_BETWEEN_SENTENCES = re.compile(r"[.!?…]+\s+(?=\S)|\n\s*(?=\S)")
_BETWEEN_CLAUSES = re.compile(r"[.!?…;]+\s+|\n+|:\s+|\s+[-–—]\s+|,\s+(?:but|because|since)\s+|\s\(")
OTHER_403 = re.compile(
    r"\b(?:rate|quota|limit|throttl\w*|too many|billing|csrf|invalid grant)\b", re.IGNORECASE
)
_MARKUP = re.compile(r"\x1b\[[0-9;]*m|<\w{1,10}>|[_\t ]+")
_MODULE = re.compile(r"\b(?:[a-z_]\w{0,40}\.){1,6}(?=[A-Z])")
_WORD_START = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_CONTRACTIONS = [
    (re.compile(r"(?i)\b(can)(?:not|'t)\b"), r"\1 not"),
    (re.compile(r"(?i)(?<=[a-z])n't\b"), " not"),
    (re.compile(r"(?i)(?<=\bi)'m\b"), " am"),
    (re.compile(r"(?i)(?<=\byou)'re\b"), " are"),
    (re.compile(r"(?i)(?<=[a-z])'ve\b"), " have"),
    (re.compile(r"(?i)\b(that|it)'s\b"), r"\1 is"),
    (re.compile(r"(?i)\bno\s+longer\s+have\b"), "do not have"),
    (re.compile(r"(?i)\bno\s+longer\b"), "not"),
    (re.compile(r"(?i)\bnot\s+(?:currently|yet|properly|explicitly|sufficiently)\b"), "not"),
    (re.compile(r"(?i)(?<=\bauthori)s"), "z"),
    (re.compile(r"(?i)(?<=\bunauthori)s"), "z"),
]


def _pattern(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives), re.IGNORECASE)


# A word alone may begin a result ("Forbidden City"): what follows it counts.
_STOP = r"(?!\s*:\s*\d)(?=\s*(?:\Z|\n|[.:;!,()\[\]*`'—–|<-]))"
_WHY = (
    r"(?!\s*:\s*\d)(?=\s*(?:\Z|\n|[^\w\s])|\s+(?:"
    r"(?:to|for(?!\s+\d)|by|on|in|because|as|since|with|without|unless|due|while|when|or)\b))"
)
_DO = (
    r"(?:access|add|alter|approve|call|change|create|delete|deploy|do|edit|execute|export|invite|list|"
    r"manage|merge|modify|perform|post|publish|push|read|remove|rename|run|see|send|share|update|"
    r"upload|use|view|write)\b"
)
_KIND = (
    r"(?<!['\"`])(?:permissions?|privileges?|(?:access\s+)?rights|scopes?|roles?|authorization|"
    r"entitlements?|clearance)\b"
)
_ROLE = (
    r"(?:(?:super|site|workspace|project|org\w*|team|channel|repo\w*|account|server|global)[\s-]?)?"
    r"(?:admin(?:istrator)?|owner|member|moderator|maintainer|manager|operator|superuser|super\s?user|"
    r"root|staff|reviewer|approver|editor|author|creator|collaborator|subscriber|employee|auditor|"
    r"developer|instructor|teacher|contributor|reporter|(?:signed|logged)[\s-]in\s+user|"
    r"(?:authorized|authenticated|registered|verified|premium|paid|privileged)\s+(?:user|account))s?\b"
)
_KEY = (
    r"(?:(?:x[\s-])?api[\s-]?key|credentials?|access\s+key(?:\s+id)?|login|session(?:\s+id)?|"
    r"(?:(?:access|auth\w*|bearer|security|client|session|refresh|api|id|personal|json\s+web|jwt|"
    r"identity|oauth|user|bot)\s+){1,3}tokens?(?:\s+id)?|jwt|signature\s+token|authentication|"
    r"authorization(?:\s+header)?|user\s?name\s*(?:[/,-]|or|and)\s*password)\b"
)
_POWER = (
    r"(?:(?:the|your|an?|our|its|company|security|access|organi[sz]ation(?:'s|al)?|server|content|"
    r"iam|rbac|resource|explicit|active)\s+){0,3}"
    r"(?:(?:polic(?:y|ies)|rules?|user|human|operator|reviewer|approver|permissions?|acl|guardrails?|"
    r"organi[sz]ation|sandbox|firewall|settings|deny)\b|" + _ROLE + ")"
)
_SUBJECT = (
    r"(?:(?:the|this|your|current|calling|an?|my|provided|supplied|given)\s+){0,3}"
    r"(?:(?:service|user)\s+account|api\s+key|access\s+token|user|caller|account|agent|assistant|bot|client|"
    r"app|application|session|token|key|member|principal|you|i|we|channel|guild|server|role|person|"
    r"operator|identity|integration|requester|guests?|viewers?|login)"
    r"(?::?\s+(?:with\s+\w+\s+)?(?:'[^']{1,60}'|\"[^\"]{1,60}\"|`[^`]{1,60}`|(?!not\b)[\w.@#:/-]{1,60}))?"
)
_WORDS = r"(?:[^.!?\n]|\.(?=\w)){0,80}?"
_NOT_LET = r"not\s+(?:allowed|permitted|authorized|entitled|eligible)"
_NOT_DO = (
    r"(?!be\b|have\b|contain|exceed|start\b|end\b|equal|overlap|repeat|include|begin|need\b|appear)"
)
_REFUSED_ACTION = r"(?:denied|forbidden|refused|unauthorized|prohibited|disallowed|rejected)"
_NEEDED = r"(?:is\s+|are\s+)?(?:required|needed|necessary)\b"
_START = (
    r"[\W_]*(?=[^\W_])"
    r"(?:[A-Za-z' ]{1,20}[,!]\s+|i\s+am\s+(?:afraid|sorry)(?:\s+that)?\s+)?"
    r"(?:(?:error|failed|failure|warning|fatal|exception|http(?:/\d(?:\.\d)?)?|[45]\d\d|client|"
    r"errno\s+\d+|i\s+am\s+sorry|sorry|but|because|got|status|code|nope|rbac|iam|acl|"
    r"upgrade\s+required|security|server|api|policy|no(?=,)|"
    r"(?:that|this|it)\s+is|(?:operation|request|call|command|tool|action)\s+"
    r"(?:cancell?ed|failed|aborted|rejected|blocked|stopped)(?=\s?[:—-]))\b[\W_]+){0,5}"
    r"(?:(?:(?:can|could|did)\s+not|failed\s+to|unable\s+to)\s[^:\n]{1,60}:\s+)?"
)
_MUST_BE = (
    r"(?:(?:must|needs?\s+to|ha(?:s|ve)\s+to)\s+be\s+|(?:are|is)\s+not\s+)"
    rf"(?:(?:an?|the|logged\s+in\s+as|of)\s+){{0,2}}(?:\w+\s+)?{_ROLE}"
)

_REFUSALS = (
    rf"(?:permission|approval|access|authorization|(?:\S+[\s-]factor\s+)?authentication|auth|log[io]n|sign[\s-]?in)s?\s*"
    rf"(?:(?:is|was|has\s+been)\s+)?(?:denied|refused|failed|failure|rejected|forbidden|prohibited|"
    rf"restricted|required|(?<=permission\s)error|(?<=permissions\s)error|(?<=ation\s)(?:error|exception)){_WHY}",
    rf"(?:permission|access|authorization)\s+denied\s+(?:exception|error){_WHY}",
    rf"access\s+to\s[^\n]{{1,80}}?\s(?:is|was|has\s+been)\s+(?:{_REFUSED_ACTION}|blocked|{_NOT_LET})\b",
    rf"(?:access|(?:this|the)\s+\w+(?:\s+\w+)?)\s+(?:to\s[^\n.]{{1,60}}?\s)?(?:is\s+)?(?:only\s+)?"
    rf"(?:restricted\s+to|limited\s+to|reserved\s+for|available\s+(?:only\s+)?(?:to|for)|for)\s+"
    rf"(?:\w+\s+){{0,3}}?{_ROLE}",
    rf"(?:this|the|that)\s+(?:\w+\s+)?\w+\s+(?:can|may|must)\s+only\s+be\s+\w+\s+by\s+(?:\w+\s+){{0,3}}?{_ROLE}",
    rf"(?:this|that|it)\s+(?:\w+\s+)?(?:requires|needs)\s+(?:(?:an?|the|to\s+be)\s+)?(?:\S+\s+){{0,3}}?"
    rf"(?:{_KIND}|{_ROLE}){_WHY}",
    rf"must\s+be\s+(?:run|executed|called|started)\s+(?:as|by|with)\s+(?:\w+\s+){{0,2}}?(?:{_ROLE}|{_KIND})",
    r"(?:[\w@.-]{1,60}\s+){1,3}(?:is|are)\s+not\s+in\s+the\s+sudoers\b",
    r"(?:the\s+)?(?:human\s+)?(?:user|operator|human|owner|reviewer|admin\w*)\s+(?:has\s+)?"
    r"(?:denied|declined|rejected|refused)(?:[.!]?\s*\Z|\s+"
    r"(?:this|the|that|your|permission|access|to)\b)",
    r"you\s+(?:need|have)\s+to\s+(?:request|ask\s+for|obtain|get)\s+(?:access|permission|authorization)\b",
    rf"(?:(?:{_SUBJECT}\s+)(?:is\s+|are\s+|am\s+)?)?"
    rf"not\s+(?:authorized|authenticated|authed|logged\s+in|signed\s+in)"
    rf"(?:\s+exception)?{_WHY}",
    rf"{_NOT_LET}(?:{_STOP}|\s+(?:to\s+{_DO}|for\s+(?:your|this|the)\s+(?:role|user|account|plan)))",
    r"(?:you|your\s+\w+)\s+(?:have|has)\s+not\s+been\s+(?:granted|given|authorized|approved|cleared)\b",
    rf"{_SUBJECT}\s+has\s+no\s+(?:\w+\s+)?(?:access|{_KIND})(?:{_STOP}|\s+(?:to|for|on|in)\b)",
    rf"(?:restricted|limited|reserved)\s+(?:to|for)\s+(?:\w+\s+){{0,2}}?{_ROLE}{_STOP}",
    rf"access\s+(?:to\s[^\n]{{1,60}}?\s)?(?:is\s+)?(?:denied|forbidden|{_NOT_LET}){_STOP}",
    r"you\s+can\s+not\s+(?:use|run|call|view|see|edit|open|delete|do)\s+(?:this|that)\s+(?:command|tool|action|"
    r"function|feature|page|resource|file|channel|endpoint|document|record|item|message|here)\b",
    rf"(?:unauthenticated|authentication\s+credentials\s+were\s+not\s+provided){_WHY}",
    rf"missing\s+(?:access|authentication){_STOP}",
    rf"(?:missing\s+or\s+)?(?:insufficient|missing|not\s+enough|no(?!\s+such)|inadequate)\s+(?:required\s+)?"
    rf"(?:(?:the|oauth|api|access|user)\s+)?(?:(?!field|param|arg|prop|col|attr)[\w.`'\"-]+\s+)?"
    rf"(?:{_KIND}(?:\(s\))?(?:{_STOP}|\s+(?:to|for|in|on)\b|\s+[\w.:/-]+{_STOP})|access(?:{_STOP}|\s+(?:to|for)\b))",
    r"operation\s+not\s+permitted\b|(?:eperm|eacces)\b(?=\W+\w)|"
    r"(?:denied|refused)\s*[:—–-]\s+['\"`]?[a-z][\w'-]*\s+['\"`]?[a-z]",
    rf"(?:you|i|we|your\s+\w+(?:\s+\w+)?)\s+(?:(?:do|does|did)\s+not\s+have\s+(?!to\b)|ha(?:ve|s)\s+"
    rf"(?:no|insufficient)\s+|lacks?\s+|are\s+lacking\s+|is\s+lacking\s+){_WORDS}\b(?:{_KIND}|access\s+to\b(?!\s+an?\b))",
    rf"(?:i|we)\s+(?:am|are)\s+{_NOT_LET}\b|you\s+do\s+not\s+have\s+(?:the\s+)?right\s+to\s+{_DO}",
    rf"you\s+are\s+{_NOT_LET}(?:{_STOP}|\s+to\s+(?:{_DO}|this\b|that\b))|you\s+(?:can\s+not\s+(?:do\s+(?:that|this)|"
    rf"access|perform\s+this)|may\s+not\s+{_DO}"
    rf"(?![^\n]{{0,80}}?(?:except|copyright|licen[sc]e|notice)))|i\s+can\s+not\s+do\s+that\W+you\s+do\s+not\s+have",
    rf"(?:{_SUBJECT}\s+)?(?:(?:must|need\s+to|needs\s+to|have\s+to|please)\s+(?:be\s+)?|are\s+not\s+)"
    rf"(?:first\s+)?(?:re-?)?(?:log|sign|authenticat)(?:ged|ed|e)?(?:[\s-]?in|\b)(?:{_STOP}|\s+"
    rf"(?:first|again|or\s+sign\s+up|with|before|and\s+try|to\s+(?:continue|proceed|get\s+access|{_DO}))\b)",
    rf"(?:{_SUBJECT}\s+)?{_MUST_BE}(?:{_STOP}|\s+(?:to\s+{_DO}|of|for\s+that)\b[^;,\n]{{0,60}}\Z)",
    rf"(?:(?:you|i|we)\s+)?(?:must\s+have|need(?:\s+to\s+have)?|require)\s+(?:(?:the|an?)\s+)?"
    rf"(?:[^\s.!?]+\s+){{0,5}}?(?:{_KIND}|(?<!internet )(?<!network )access\b)",
    rf"(?:your|the|this)\s+(?:\w+\s+)?(?:plan|subscription|tier|licen[sc]e|edition|role|account|"
    rf"polic(?:y|ies)|api\s+key|key|token|permissions?|administrator|organi[sz]ation|workspace|credentials)\s+"
    rf"(?:\([^)\n]{{1,40}}\)\s+)?(?:(?:does|do)\s+not\s+(?:allow|include|permit|support|cover)|(?:is|are)\s+{_NOT_LET}|"
    rf"forbids?|prohibits?|(?:can|may)\s+not\s+{_NOT_DO})\b",
    rf"only\s+(?!one\b|two\b|three\b|\d)(?:(?:the|an?|your)\s+)?(?:[\w'-]{{1,30}}\s+){{0,3}}?{_ROLE}"
    rf"[^.,\n]{{0,60}}?\s(?:(?:can|may)(?!\s+(?:not|be))|(?:is|are)\s+(?:allowed|permitted|"
    rf"authorized|able|entitled)|(?:has|have)\s+(?:access|permission|the\s+right))\b[^.,\n]{{0,80}}(?:[.!]|\Z)",
    r"only\s+(?:users|people|accounts|callers)\s+(?:with|in|who)\s[^.,\n]{1,60}?\s(?:can|may)(?!\s+be)\b"
    r"[^.,\n]{0,80}(?:[.!]|\Z)",
    rf"you\s+(?:can|may)\s+only\s+{_DO}\s[^.,;\n]{{0,40}}?\bown\b|you\s+are\s+(?:forbidden|prohibited)\s+from\b",
    r"(?:the\s+)?(?:server|service|host|api|remote|system|gateway)\s+(?:has\s+)?(?:denied|refused)\s+"
    r"(?:access|permission|authorization|the\s+request\W+(?:not\s+auth|unauth|forbidden))",
    rf"(?:for\s+)?{_ROLE}[\s-]+only{_STOP}",
    r"(?:this|the|that)\s+(?:\w+\s+)?(?:endpoint|feature|command|tool|api|action|function(?:ality)?|page|"
    r"resource|operation|model|area|channel|report)\s+is\s+(?:only\s+available|available\s+only|private|"
    r"restricted|reserved|not\s+available\s+(?:on|for|to|in)\s+your)\b",
    rf"(?:this|the|that)\s+(?:document|file|repository|project|channel|group|page|account|profile|video|"
    rf"room|board)\s+is\s+private{_STOP}",
    r"your\s+(?:\w+\s+)?(?:level|clearance|role|permissions|privileges|rights)\s+(?:is|are)\s+"
    r"(?:too\s+low|insufficient|not\s+(?:sufficient|enough|high))",
    r"(?:you|your\s+\w+(?:\s+\w+){0,4}?)\s+(?:have\s+been|has\s+been|were|was|are|is)\s+(?:denied|refused|banned|"
    r"blocked|suspended|deactivated|locked|disabled|barred|restricted|rejected|revoked)\b",
    rf"your\s+\w+(?:\s+\w+)?\s+(?:is|are)\s+{_NOT_LET}\b",
    rf"(?:{_ROLE}|guests?|viewers?|users?|anonymous\s+users?|bots?|readers?|non-admins)\s+(?:may|can)\s+not\s+"
    rf"{_DO}[^.,;\n]{{0,60}}[.!]?\s*\Z",
    rf"you\s+do\s+not\s+own\b|not\s+(?:an?|the)\s+{_ROLE}{_STOP}",
    r"(?:[\w']{1,30}\s+){0,4}polic(?:y|ies)\s+(?:prevents?|forbids?|prohibits?|blocks?|does\s+not\s+allow)\s+"
    r"(?:this|that|the\s+(?:action|operation|request)|access|you|(?:sharing|sending|using|calling|running|downloads?|"
    r"uploads?|exports?|network)\b)",
    rf"{_KEY}\s+(?:(?:is|are|was|were)\s+)?(?:required|needed|rejected|refused|not\s+accepted){_WHY}",
    rf"(?:(?:the|an?)\s+)?{_ROLE}\s+(?:access|login|credentials|approval|{_KIND})\s+{_NEEDED}(?!\?)",
    rf"(?:permissions?|privileges?|role)\s+(?:[A-Z`'\"][\w.:`'\" -]{{1,40}}?\s+)?{_NEEDED}{_STOP}",
    rf"(?:request\s+(?:had|has|contains)\s+)?"
    rf"(?:invalid|incorrect|expired|missing|revoked|bad|wrong|unknown|malformed|"
    rf"no(?!\s+(?:session|login|such)))\s+(?:or\s+\w+\s+)?"
    rf"(?:\w+\s+)?{_KEY}(?:{_WHY}|\s+(?:pair|provided|found|were\s+(?:provided|supplied|given)|supplied|given|specified)\b)",
    r"(?:invalid|expired|revoked)(?:\s+or\s+\w+)?\s+token(?=\s*(?:\Z|[.!,]))",
    rf"(?:(?:(?:your|the|this|access|provided|api|supplied|given|specified)\s+){{0,3}}(?:token|{_KEY}))"
    rf"(?:\s+(?:(?:you\s+)?provided|included\s+in\s+the\s+request|supplied))?"
    rf"(?:\s+(?:has|have|is|was|are)(?:\s+been)?)?\s+(?:expired|invalid|revoked|"
    rf"not\s+(?:valid|accepted)|missing|incorrect){_WHY}",
    r"could\s+not\s+validate\s+credentials\b|unable\s+to\s+(?:locate|find|load)\s+credentials\b",
    rf"(?:(?:access\s+to\s+)?(?:this|the|that|your)\s+(?:\w+\s+){{1,3}}(?:is|was|has\s+been)\s+)?"
    rf"(?:{_REFUSED_ACTION}|blocked|declined|disabled|{_NOT_LET}|restricted)\s+by\s+{_POWER}",
    rf"(?:the|your|an?)\s+{_POWER}\s+(?:has\s+|have\s+)?(?:disabled|blocked|restricted|forbidden|prohibited)\s+"
    rf"(?:this|that|the|your|access)\b",
    rf"\w+ing\s+(?:\w+\s+){{0,4}}is\s+(?:(?:limited|restricted|reserved)\s+(?:to|for)\s+(?:\w+\s+){{0,2}}?{_ROLE}|"
    rf"(?:{_NOT_LET}|forbidden|prohibited|disabled)\s+for\s+(?:\w+\s+){{0,2}}?(?:you|users|guests|viewers|interns|"
    rf"accounts?|bots?|{_ROLE}))",
    r"(?:please\s+)?(?:log|sign)\s?in\s+to\s+continue\b|not\s+your\s+\w+[.!]?\Z",
    rf"(?:(?:this|the|that|your)\s+)?(?:requested\s+)?(?:action|operation|request|command|resource|"
    rf"endpoint|url|(?:tool\s+)?(?:call|use|execution)|tool)(?:\s+['\"`][^'\"`\n]{{1,40}}['\"`])?\s+(?:(?:is|was|has\s+been)\s+)?"
    rf"(?:{_NOT_LET}|{_REFUSED_ACTION}|(?:blocked|declined|stopped)(?=\s+by))\b(?:{_STOP}|\s+(?:because|for|to|in\s+(?:this|your))\b|\s+by\s+{_POWER})",
    rf"(?:http|status(?:\s+code)?|error)\W{{0,3}}40[13]{_STOP}",
    r"resource\s+not\s+accessible\s+by\b",
    r"(?:the\s+)?requested\s+operation\s+requires\s+elevation\b",
)


def _refusal(after_word: str) -> re.Pattern[str]:
    """Return the pattern of a refusal; `after_word` is what may follow "Forbidden" alone."""
    word = (
        r"(?:unauthorized|forbidden)(?:\s+(?:exception|error|operation|access|user|request))?"
        + after_word
    )
    return re.compile(rf"{_START}(?:{'|'.join((word, *_REFUSALS))})", re.IGNORECASE)


_REFUSAL, _REFUSAL_IN_ERROR = _refusal(_STOP), _refusal(_WHY)
_LACKS = _pattern(
    rf"\b(?:do|does|did)\s+not\s+have\s+(?!to\b){_WORDS}\b(?:{_KIND}|access\s+to\b(?!\s+an?\b))(?!\s+(?:of|bits)\b)",
    rf"\b(?:lacks?|is\s+missing|are\s+missing|has\s+(?:no|insufficient))\s+{_WORDS}\b{_KIND}(?!\s+bits\b)",
    rf"\b(?:is|are|was|were)\s+not\s+authorized(?:\s+(?:to|for|by)\b|{_STOP})",
    rf"(?<=\w)\W?\s+(?:is|are)\s+not\s+(?:allowed|permitted)\s+to\s+{_DO}",
)
"""Missing permission of anyone: the text before it says of whom."""
_IN_ERROR = _pattern(
    r"\b(?:permission|access|authorization|logon|command|privilege)s?\s(?:[^.;\n]|\.(?=\w)){0,60}?\b(?<!not\s)denied\b"
    r"(?!\s+list)",
    r"\b(?:permission|access|authorization)\s+denied\b",
    r"\b(?:authentication|authorization|login|permission)s?\s+(?:error|exception|failed|failure|incorrect)\b",
    r"\b(?:is|are|was)\s+(?:forbidden|unauthorized|prohibited)\b|\brequest\s+forbidden\b|"
    r"\bunauthenticated\b|\b(?:unable\s+to|(?:can|could|did)\s+not)\s+(?:authenticate|authorize|log\s?in|sign\s?in)\b",
    rf"\b(?:is|are)\s+not\s+(?:allowed|permitted)\s+to\s+{_NOT_DO}|\b{_NOT_LET}\s+(?:for|in)\s+(?:your\s+)?"
    rf"(?:role|user|account|plan|guests?|viewers?|{_ROLE})",
    rf"\b(?:user|role|guests?|viewers?|anonymous|bots?|non-admins|caller|key|token|agents?|{_ROLE})\b"
    rf"(?:\s+(?:'[^'\n]{{1,40}}'|\"[^\"\n]{{1,40}}\"|\w+))?\s+(?:can|may)\s+not\s+{_NOT_DO}{_DO}",
    rf"\b{_KEY}\s[^.;\n]{{0,20}}(?:expired|revoked|not\s+accepted|is\s+(?:invalid|not\s+valid))|"
    rf"\b(?:invalid|incorrect|expired|revoked|bad)\s+(?:\w+\s+)?{_KEY}|\bsession\s+expired\b|"
    rf"\b(?:token|session|login)\s+(?:has\s+|is\s+|was\s+)?(?:expired|revoked|required)\b|"
    rf"\bexpired\s+token\b|\binvalid\s+auth\b|\bpassword\s+not\s+accepted\b|\bwrongpass\b|\bnoauth\b",
    rf"\brequires?\s+(?:authentication|login|elevation|sudo|root|(?:an?\s+)?{_ROLE})\b",
    r"\brequires?\s+(?:the\s+)?(?:[^\s.!?]+\s+){1,5}?(?:permission|privilege|scope|role)s?\b(?!\s+of\b)",
    r"\b(?:do|does)\s+not\s+have\s+(?:\S+\s+){0,3}?access\b|\bnot\s+(?:yet\s+)?(?:been\s+)?"
    r"(?:granted|consented)\b|\bprivilege\s+is\s+not\s+held\b",
    rf"\b(?<!if )not\s+(?:authenticated|authorized|logged\s+in|signed\s+in)\b|{_MUST_BE}",
    r"\b(?:account|user)\s+(?:(?:is|has\s+been|was)\s+)?(?:inactive|suspended|disabled|deactivated|banned|"
    r"blocked|locked\s+out)\b",
    rf"\byou\s+can\s+not\s+{_DO}\s+(?:this|that|it|other|another|someone)\b|"
    rf"\bpolic(?:y|ies)\s+(?:prevents?|forbids?|prohibits?|blocks?|does\s+not\s+allow)\b",
    rf"\bnot\s+(?:(?:an?|the)\s+{_ROLE}|in\s+(?:the\s+)?(?:group|sudoers|allow\s?list|white\s?list|"
    rf"allowed\s+list|list\s+of\s+allowed))\b",
    rf"\b(?:restricted|reserved|disabled)\s+(?:to|for|by)\s+(?:your\s+)?(?:role|\w*\s*{_ROLE})",
    r"\brestricted\s+action\b|\b(?:is|user)\s+(?:\w+\s+)?restricted\b|"
    r"\brow[\s-]level\s+security\b|\bpg hba\b",
    r"\boutside\s+(?:of\s+)?(?:the\s+|your\s+)?(?:allowed|permitted|authorized|sandbox|workspace)\s*"
    r"(?:\w*\s*(?:director|path|folder|root)|\Z)|\bnot\s+(?:with)?in\s+(?:the\s+)?(?:allowed|permitted)\s+"
    r"(?:director|path|folder|root)",
    rf"\b(?:user|operator|human|reviewer|owner)\s+(?:has\s+)?(?:denied|declined|rejected|refused)\b|"
    rf"\b(?:{_REFUSED_ACTION}|blocked|declined|disabled|restricted|{_NOT_LET})\b[^.;\n]{{0,40}}?\sby\s+{_POWER}",
    rf"\b(?:can|may|must)\s+only\s+be\s+\w+\s+by\b|\bonly\s+by\s+(?:the\s+)?{_ROLE}",
    rf"\baccess\s[^.;\n]{{0,60}}?{_NOT_LET}|\b(?:path|directory)\s+traversal\b|\bread-only\s+access\b|"
    rf"\bonly\s+has?\s+read\b|\byou\s+(?:can|may)\s+only\s+{_DO}\s[^.;\n]{{0,40}}\bown\b",
    rf"\bunauthorized\b|\boperation\s+not\s+permitted\b|(?<!payment )(?<!card )\bdenied\W*\Z|"
    rf"\bconsent\s+required\b|"
    rf"\b{_ROLE}\s+required\b|\b(?:needs?|requires?)\s+(?:\w+\s+){{0,2}}approval\b",
    r"\b(?:plan|subscription|tier|licen[sc]e|role|account|polic(?:y|ies)|key|token|permissions?|administrator|"
    r"organi[sz]ation|workspace|credentials|settings|rules?|owner|sandbox)\b[^.;\n]{0,40}?\s(?:do|does|did)\s+not\s+"
    r"(?:allow|permit|authorize|grant)\b",
    r"\b(?:permissions?|privileges?|access\s+level|clearance|authorization)\s[^.;:\n'\"`]{0,30}?"
    r"\b(?:denied|failed|insufficient|too\s+low|missing|revoked|not\s+(?:granted|held|sufficient))\b|"
    r"\bonly\s+(?:has\s+)?\S+\s+(?:privileges?|permissions?|access)\b",
    r"\b(?:not|without|missing|insufficient|lacks?|inadequate|bad|wrong)\s(?!find|found|parse|load|resolve|exist|save|set|update|fetch|get|list|change|apply)(?:[^.;:\n'\"`]{0,40}?\s)?"
    r"(?:permissions?|privileges?|access\s+rights|credentials)\b(?!\s+(?:file|set|list|name|table|bit))",
    r"\b(?:must|need\s+to|have\s+to)\s+(?:be\s+)?(?:log|sign)(?:ged|ed)?\s?in\b|\bhas\s+no\s+access\b|"
    rf"\b(?:do|does)\s+not\s+own\b|{_NOT_LET}\s+for\s+(?:this\s+|an?\s+)?(?:token|key|app|client|caller)|\btool\s+use\s+was\s+rejected\b",
    rf"\bpolicy\s+violation\b|\bbelongs\s+to\s+(?:another|someone)\b|\bcan\s+not\s+{_DO}[^.;\n]{{0,30}}?\s"
    rf"(?:another|other|someone)\b|\bdisabled\s+for\s+(?:this|your)\s+(?:agent|role|user|account)\b",
    rf"\bauthentication\s+(?:(?:is\s+)?required|unsuccessful)\b|\b(?:have|has)\s+no\s+{_KIND}(?!\s+bits)|"
    rf"\bno\s+(?:\w+\s+){{0,2}}credentials\b|\binvalid\s+client\Z|\b(?:user|caller|client)\s+{_NOT_LET}\b",
    rf"\b(?:read|writ|delet|access|execut|modify|runn|creat|edit|send|export|upload|download|open|chang|remov)ing\s"
    rf"\S+\s+is\s+{_NOT_LET}|\b(?:command|call|request|action|tool|operation)\s+(?:(?:is|was)\s+)?blocked\b|"
    rf"\Aforbidden\s\w+\Z",
    r"\bblocked\s+a\s+frame\b|\bcode\s*=\s*permission\s+denied\b|\bnot\s+allowed\s+token\b",
)
"""What may stand anywhere in an error."""
_STATUS = _pattern(
    rf"(?<!expected )\b(?:http|status|code|returned|response|responded(?:\s+with)?|error)"
    rf"\W{{0,3}}e?40[13]"
    rf"(?:{_STOP}|\s+(?:from|for|on|when|by|while)\b)",
    r"\b40[13]\s+(?:client\s+error|forbidden|unauthorized)\b|\A(?:\w+:\s+)?40[13]\s*(?:\Z|[-–—:,])",
)
_REQUIREMENT = re.compile(
    r"[^.!?:\n]{1,100}?\brequires?\s+(?:the\s+(?:[^\s.!?]|[.\s](?=\S)){1,60}?|[A-Z][A-Z0-9 ]+)\s+"
    r"(?:permission|privilege)s?\b(?!\s+of\b)"
)
_WHO = re.compile(
    rf"[\W_]*(?:(?:error|sorry|warning)\b[\W_]+)?(?:{_SUBJECT}|(?!(?:s?he|it|they|who|no\s?one|everyone)\b)[\w.@-]+)",
    re.IGNORECASE,
)
