"""Lint of all text that a model reads: what is hidden in it, what it orders, what it lacks.

Descriptions are data that models obey. Text is judged as a model would read it: look-alike
letters, full-width forms and invisible characters are seen through. A clean report does
not make a text harmless. Where texts come from, and on which line, the caller knows;
`unseen` finds the characters, this module weighs the words.
"""

import re
from collections.abc import Collection, Iterator
from functools import cache
from itertools import chain
from typing import NamedTuple
from unicodedata import east_asian_width

from toolkiln.model import Severity
from toolkiln.spec.checks import languages, unseen

OPENAI_LONGEST = 1_024
"""Characters of a description that OpenAI was seen to accept."""
CLAUDE_CODE_CUT = 2_048
"""Characters after which Claude Code cuts a description."""
_BLOB = 80


class Remark(NamedTuple):
    """One thing to say about a text; where it stands in the source, the caller adds."""

    rule: str
    severity: Severity
    message: str
    fix: str


class _Order(NamedTuple):
    """A kind of sentence that is meant for the model, not about the tool."""

    what: str
    severity: Severity
    words: frozenset[str]
    pieces: tuple[str, ...]
    """Every match contains one of these words or pieces: a cheap first look."""
    source: str

    @property
    def pattern(self) -> re.Pattern[str]:
        """Most processes never need it, and compiling all of them takes longer than a reading."""
        return _compiled(self.source)

    def may_match(self, text: str, words: frozenset[str]) -> bool:
        return not self.words.isdisjoint(words) or any(piece in text for piece in self.pieces)


def _order(what: str, severity: Severity, anchors: str, pattern: str) -> _Order:
    words = frozenset(anchor for anchor in anchors.split() if anchor.isalpha())
    pieces = tuple(anchor for anchor in anchors.split() if not anchor.isalpha())
    return _Order(what, severity, words, pieces, pattern)


@cache
def _compiled(source: str) -> re.Pattern[str]:
    return re.compile(source, re.VERBOSE)


_ORDERS = (
    _order(
        "tells the model to drop its instructions",
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
    _order(
        "tells the model to keep something from the user",
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
    _order(
        "tells the model when to call tools",
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
    _order(
        "carries markup of a prompt",
        Severity.ERROR,
        "< [",
        r"""</?\s*(?:important|system|instructions?|critical|assistant|developer|admin
            |(?:system|hidden|secret)[-_\s]?(?:prompt|message|instructions?|reminder)
            |function_calls?|tool_(?:call|result|use)s?)\s*(?:\s[^<>]{0,80})?/?>
        |<\|[a-z_]{2,30}\|>|\[/?inst\]|<</?sys>>|\[/system\]|\[\s*system\s+(?:message|prompt)\s*\]""",
    ),
    _order(
        "speaks in a role of the conversation",
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
    _order(
        "asks for what the conversation or the machine holds",
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
    _order(
        "asks for what the conversation or the machine holds",
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
    _order(
        "does something behind the user's back",
        Severity.WARNING,
        "secretly silently covertly",
        r"""\b(?:secretly|covertly)\s+\w+
        |\bsilently\s+(?:send|forward|copy|bcc|upload|post|record|log|include|add)\b""",
    ),
    _order(
        "has an HTML comment, which people do not see",
        Severity.WARNING,
        "<",
        r"<!--\s*(?:\w[^\s<>]*\s+){2}\w",
    ),
    _order(
        "has an image whose address can carry data away",
        Severity.WARNING,
        "[ <",
        r"""!\[[^\]\n]{0,99}\]\(\s?https?://[^)\s]{0,299}?[?&={$%][^)]{0,999}\)
        |<img\b[^>]{0,99}?\bsrc\s?=\s?["']?https?://[^>]{0,299}?[?&={$%]""",
    ),
)
_WORDS = frozenset(word for order in _ORDERS for word in order.words)
_PIECES = tuple({piece for order in _ORDERS for piece in order.pieces})
_PUNCTUATION = str.maketrans(dict.fromkeys(".,;:!?()[]{}<>|\"'*`~#", " "))
_MARKDOWN = str.maketrans({"*": None, "`": None, "~": None, "’": "'", "‘": "'"})
_BLANKS = re.compile(r"\s\s+")
"""Runs of blanks, which would make the patterns try every way to part them."""
_BLOB_TEXT = re.compile(rf"[A-Za-z0-9+/_-]{{{_BLOB},}}={{0,2}}")
_MENTION = re.compile(r"`([A-Za-z][\w-]*)(?:\(\))?`|(?<![\w./-])([A-Za-z]\w*_\w*)(?![\w-])")
_NAME_OF_TOOL = r"(?P<quote>`)?(?P<name>[A-Za-z][\w-]*)(?:\(\))?`?(?P<tool>\s+tool\b)?"
_ORDER_ABOUT_TOOL = re.compile(
    r"\b(?:instead\s+of|rather\s+than|in\s+place\s+of|replaces|supersedes|before|after|never|do\s+not"
    r"|don't|must\s+not|avoid|stop"
    r"|when(?:ever)?\s+(?:you\s+)?(?:use|using|call|calling|invoke|invoking|run|running))\s+"
    r"(?:(?:ever|you|using|use|calling|call|invoking|invoke|running|run|the|tool|any)\s+){0,4}"
    + _NAME_OF_TOOL,
    re.IGNORECASE,
)
"""An order about another tool."""
_CLAIMS = (
    *("deprecated", "obsolete", "broken", "unsafe", "insecure", "disabled", "outdated"),
    *("replaced", "superseded", "compromised"),
)
_CLAIM_ABOUT_TOOL = re.compile(
    rf"(?<![\w`-]){_NAME_OF_TOOL}\s+(?:is|was|has\s+been)\s+(?:now\s+)?(?:{'|'.join(_CLAIMS)})\b",
    re.IGNORECASE,
)
"""A claim that makes a model avoid another tool. It can begin at any word, so that texts without
its last word are not searched."""
_FILLER = {
    *("a", "an", "and", "for", "from", "function", "functionality", "in", "is", "it", "method"),
    *("of", "on", "or", "that", "the", "this", "to", "tool", "use", "used", "uses", "utility"),
    "with",
}
_WORD = re.compile(r"\w+")
_ENOUGH = 12
"""Words that no description needs just to say its name again."""


def lint(text: str, where: str, other_tools: Collection[str] = ()) -> list[Remark]:
    """What is wrong with a text that a model reads.

    `where` names the text in messages, such as "the description"; `other_tools` are the
    names of the tools beside this one.
    """
    plain = text.isascii() and text.replace("\n", "").replace("\t", "").isprintable()
    remarks = [] if plain else list(_hidden(text, where))
    remarks += _orders(text if plain else unseen.as_read(text), where)
    for what, severity, quote in languages.orders(text if plain else unseen.shown(text)):
        remarks.append(_instruction(severity, where, what, quote))
    remarks += shadows(text if plain else unseen.as_read(text), where, other_tools)
    if other_tools and ("_" in text or "`" in text):
        remarks += _mentions(text, where, other_tools)
    return remarks


def lint_description(description: str, name: str) -> list[Remark]:
    """Whether a tool's description says enough, and not too much, to be chosen by."""
    if _is_thin(description, name):
        return [
            Remark(
                "description-thin",
                Severity.WARNING,
                f"the description {description.strip()!r} says no more than the name"
                if description.strip()
                else "the description is empty",
                "say in a sentence or two what the tool does, when to use it and what it returns",
            )
        ]
    size = len(description)
    if size <= OPENAI_LONGEST:
        return []
    consequence = (
        f"Claude Code cuts it at {CLAUDE_CODE_CUT:,}"
        if size > CLAUDE_CODE_CUT
        else f"some providers accept no more than {OPENAI_LONGEST:,}"
    )
    return [
        Remark(
            "description-long",
            Severity.WARNING,
            f"the description has {size:,} characters; {consequence}",
            "keep what a model needs to choose the tool, move the rest to titled sections",
        )
    ]


def _hidden(text: str, where: str) -> Iterator[Remark]:
    if found := unseen.hidden(text):
        yield Remark(
            "hidden-characters",
            Severity.ERROR
            if any(unseen.is_smuggling(char) for _, char in found)
            else Severity.WARNING,
            f"{where} has characters that people do not see: {unseen.listed(found)}",
            "delete them, or write what they stand for in plain characters",
        )
    if words := unseen.look_alikes(text):
        yield Remark(
            "hidden-characters",
            Severity.WARNING,
            f"{where} has letters that look like Latin ones but are not: {unseen.listed(words)}",
            "type these words again in one alphabet",
        )


def _orders(text: str, where: str) -> Iterator[Remark]:
    lowered = text.lower()
    words = lowered.translate(_PUNCTUATION).split()
    if not _WORDS.isdisjoint(words) or any(piece in lowered for piece in _PIECES):
        lowered = _BLANKS.sub(_one_blank, lowered.translate(_MARKDOWN))
        known = _WORDS.intersection(words)
        said = set()
        for order in _ORDERS:
            if order.what in said or not order.may_match(lowered, known):
                continue
            if found := order.pattern.search(lowered):
                said.add(order.what)
                yield _instruction(order.severity, where, order.what, found[0])
    if len(text) >= _BLOB and max(map(len, words), default=0) >= _BLOB:
        for found in _BLOB_TEXT.finditer(text):
            if _is_encoded(found[0]):
                what = f"has {len(found[0])} characters of what looks like encoded data"
                yield _instruction(Severity.WARNING, where, what, found[0])
                break


def _one_blank(run: re.Match[str]) -> str:
    return "\n" if "\n" in run[0] else " "


def _instruction(severity: Severity, where: str, what: str, quote: str) -> Remark:
    words = " ".join(quote.split())
    shown = words if len(words) <= 60 else f"{words[:59]}…"
    return Remark(
        "model-instructions",
        severity,
        f"{where} {what}: {shown!r}",
        "describe what the tool does and takes; leave what the model should do to its user",
    )


def _is_encoded(text: str) -> bool:
    """Tells base64 from long paths, identifiers, rulers and hex digests."""
    counts = [sum(map(test, text)) for test in (str.isupper, str.islower, str.isdigit)]
    return min(counts) >= len(text) // 20 and text.count("/") + text.count("_") <= len(text) // 12


def _mentions(text: str, where: str, other_tools: Collection[str]) -> Iterator[Remark]:
    names = (quoted or bare for quoted, bare in _MENTION.findall(text))
    for name in dict.fromkeys(names):
        if name in other_tools:
            yield Remark(
                "mentions-other-tool",
                Severity.INFO,
                f"{where} mentions the tool {name!r}",
                "describe this tool on its own: the other one may be absent or mean something else",
            )


def shadows(text: str, where: str, other_tools: Collection[str]) -> Iterator[Remark]:
    """Find orders about other tools: those beside this one, and any that is called a tool."""
    said = set()
    folded = text.casefold()
    has_claim = any(claim in folded for claim in _CLAIMS)
    claims = _CLAIM_ABOUT_TOOL.finditer(text) if has_claim else ()
    for found in chain(_ORDER_ABOUT_TOOL.finditer(text), claims):
        name, quoted, is_tool = found["name"], found["quote"], found["tool"]
        is_name = bool(quoted or is_tool or "_" in name)
        known = is_name and name in other_tools
        if name not in said and (known or (is_tool and (quoted or "_" in name))):
            said.add(name)
            words = " ".join(found[0].split())
            yield Remark(
                "shadows-other-tool",
                Severity.WARNING,
                f"{where} tells the model what to do with the tool {name!r}: {words[:60]!r}",
                "describe this tool on its own; what another tool is for, its own description says",
            )


def _is_thin(description: str, name: str) -> bool:
    if len(description) > 60 + 4 * len(name):
        return False
    wide = sum(map(_is_wide, description)) if not description.isascii() else 0
    words = _WORD.findall(description.lower())
    if len(words) + wide // 2 < 3 or len(description.strip()) + wide < 20:
        return True
    if len(words) >= _ENOUGH:
        return False
    known = {_stem(word) for word in re.findall(r"[^\W\d_]+|\d+", _split_camel(name).lower())}
    return all(word in _FILLER or _stem(word) in known for word in words)


def _is_wide(char: str) -> bool:
    return east_asian_width(char) in "WF"


def _split_camel(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)


def _stem(word: str) -> str:
    for ending in ("ing", "es", "ed", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word
