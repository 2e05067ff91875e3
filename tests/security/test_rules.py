"""Who may run what: the first rule that fits decides, and nothing else does."""

from fnmatch import fnmatchcase
from typing import Any, get_args
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from properties import examples
from tables import each_row
from toolkiln.model.identity import Caller
from toolkiln.model.policy import Effect, PolicyDecision, Rule
from toolkiln.model.spec import Dialect, Hints, Toolkit, ToolSpec
from toolkiln.security import rules as module
from toolkiln.security.rules import Rules

ANN = Caller(user_id="ann", groups=frozenset({"staff"}))


def spec(name: str = "delete_file", toolkit: str | None = None, **hints: bool | None) -> ToolSpec:
    return ToolSpec(
        name=name,
        description="Do it.",
        parameters={"type": "object"},
        dialect=Dialect.FUNCTION,
        entry="run",
        display_name="Run",
        toolkit=toolkit
        if toolkit is None
        else Toolkit(name=toolkit, display_name="Kit", description="Tools."),
        hints=Hints(**hints),
        digest="0" * 64,
        path="run.py",
        line=1,
    )


def effect(
    *rules: Rule, caller: Caller = ANN, tool: ToolSpec | None = None, default: Effect = "allow"
) -> Effect:
    return Rules(rules, default).decide(caller, tool or spec()).effect


# What decides


@each_row("default", get_args(Effect))
def test_without_a_rule_that_fits_the_default_decides(default: Effect) -> None:
    rules = Rules([Rule(effect="deny", users=("bob",))], default)

    decision = rules.decide(ANN, spec())

    why = f'no rule fits, and policy = "{default}" decides'
    assert decision == PolicyDecision(default, why, None)


def test_the_first_rule_that_fits_decides_and_says_which_it_is() -> None:
    rules = Rules(
        [
            Rule(effect="allow", users=("bob",)),
            Rule(effect="allow", groups=("staff",), hints=("read_only",)),
            Rule(
                effect="deny",
                groups=("guests", "staff"),
                hints=("destructive",),
                reason="guests change nothing",
            ),
            Rule(effect="allow"),
        ]
    )

    decision = rules.decide(ANN, spec(destructive=True))

    assert (decision.effect, decision.rule) == ("deny", 3)
    assert decision.why == (
        'rule 3 denies: guests change nothing (groups = ["guests", "staff"], '
        'hints = ["destructive"])'
    )


def test_a_rule_that_asks_for_nothing_fits_any_call() -> None:
    decision = Rules([Rule(effect="ask")]).decide(Caller(), spec())

    assert decision == PolicyDecision("ask", "rule 1 asks for approval (any call)", 1)


def test_who_may_approve_their_own_calls_comes_with_the_decision() -> None:
    rules = Rules([Rule(effect="ask", users=("ann",), approve_own=True), Rule(effect="ask")])

    assert rules.decide(ANN, spec()).approve_own
    assert not rules.decide(Caller(user_id="bob"), spec()).approve_own


# The session's own limits


def test_outside_the_limits_of_a_session_everything_is_denied() -> None:
    caller = Caller(user_id="ann", tools=("read_*", "list"))
    rules = Rules([Rule(effect="allow")])

    assert rules.decide(caller, spec("read_file")).effect == "allow"
    assert rules.decide(caller, spec("list")).effect == "allow"
    assert rules.decide(caller, spec("delete_file")) == PolicyDecision(
        "deny",
        'the session is limited to tools = ["read_*", "list"], and "delete_file" is not among them',
    )


@each_row("name", ["Read_file", "read-file", "ｒead_file"])
def test_limits_fit_exactly(name: str) -> None:
    assert effect(caller=Caller(tools=("read_*",)), tool=spec(name)) == "deny"


# Conditions


DISCORD = Caller(user_id="42", platform="discord")


@each_row(
    "conditions, caller, tool, fits",
    [
        ({"users": ("discord:42",)}, DISCORD, spec(), True),
        ({"users": ("discord:42",)}, Caller(user_id="42"), spec(), False),
        ({"users": ("discord:42",)}, Caller(user_id="42", platform="slack"), spec(), False),
        ({"tools": ("[A-D]elete[-+]file",)}, ANN, spec("Delete-file"), True),
        ({"tools": ("[A-D]elete[-+]file",)}, ANN, spec("delete_file"), True),
        ({"tools": ("cafe*",)}, ANN, spec("cafe\u0301"), True),
        ({"toolkits": ("files*", "shell")}, ANN, spec("files_admin"), False),
        ({"toolkits": ("*",)}, ANN, spec(), False),
        ({"toolkits": ("*",)}, ANN, spec(toolkit="x"), True),
        ({"hints": ("destructive", "open_world")}, ANN, spec(open_world=True), True),
    ],
)
def test_a_rule_denies_what_fits_its_condition(
    conditions: dict[str, Any], caller: Caller, tool: ToolSpec, fits: bool
) -> None:
    found = effect(Rule(effect="deny", **conditions), caller=caller, tool=tool)

    assert found == ("deny" if fits else "allow")


@each_row("caller", [Caller(), Caller(platform="discord"), Caller(user_id="")])
def test_a_caller_without_a_user_matches_the_star_only(caller: Caller) -> None:
    assert effect(Rule(effect="deny", users=("", "discord:", "None")), caller=caller) == "allow"
    assert effect(Rule(effect="deny", users=("*",)), caller=caller) == "deny"


@each_row("field", ["users", "groups", "privileges"])
def test_callers_are_matched_exactly(field: str) -> None:
    caller = Caller(user_id="ann", groups=frozenset({"ann"}), privileges=frozenset({"ann"}))

    def found(*values: str, caller: Caller = caller) -> Effect:
        given: Any = {field: values}
        return effect(Rule(effect="deny", **given), caller=caller)

    for value in ("Ann", "an", "ann ", "a*", "an?", "[a]nn"):
        assert found(value) == "allow"
    assert found("bob", "ann") == "deny"
    assert found("*", caller=Caller()) == "deny"


# Tools


@each_row(
    "glob, name, does_fit",
    [
        ("delete_file", "delete_file", True),
        ("delete_file", "delete_files", False),
        ("delete_*", "delete_file", True),
        ("*_file", "delete_file", True),
        ("de*le", "delete_file", True),
        ("*let*", "delete_file", True),
        ("*e*e*e*e", "delete_file", True),
        ("*e*e*e*e*e", "delete_file", False),
        ("d[aeiou]lete_?ile", "delete_file", True),
        ("d[!e]lete_file", "delete_file", False),
        ("delete*delete", "delete", False),
        ("a*a", "a", False),
        ("x[z-a]", "xz", False),
        ("[", "[", True),
        ("[]]", "]", True),
        ("[a-]", "-", True),
        ("[[&&[a]", "&", True),
        ("a?b", "a\nb", True),
        ("a*b", "a\n\nb", True),
        ("\ud800*", "\ud800x", True),
    ],
)
def test_globs_fit_whole_names(glob: str, name: str, does_fit: bool) -> None:
    rule = Rule.model_construct(effect="allow", tools=(glob,))

    found = effect(rule, tool=spec().model_copy(update={"name": name}), default="deny")

    assert found == ("allow" if does_fit else "deny")


def test_a_long_name_and_a_glob_of_many_stars_are_no_trouble() -> None:
    rule = Rule(effect="deny", tools=("*a" * 50 + "*b",))

    assert effect(rule, tool=spec("a" * 200_000)) == "allow"
    assert effect(rule, tool=spec("a" * 200_000 + "b")) == "deny"


LOOK_ALIKES = ["Delete-File", "DELETE_FILE", "delete-file", "ｄelete_file", "delete_ﬁle"]


@each_row("name", LOOK_ALIKES)
@each_row("glob", ["delete_file", "Delete-File", "delete_*", "*_FILE", "[d]elete?f*"])
@each_row("says", ["deny", "ask"])
def test_what_is_denied_is_denied_under_look_alikes(name: str, glob: str, says: Effect) -> None:
    assert effect(Rule(effect=says, tools=(glob,)), tool=spec(name)) == says


@each_row("name", LOOK_ALIKES)
@each_row("glob", ["delete_file", "delete_*", "*_file"])
def test_what_is_allowed_is_allowed_under_its_own_name_only(name: str, glob: str) -> None:
    allow = Rule(effect="allow", tools=(glob,))
    expected: Effect = "allow" if fnmatchcase(name, glob) else "deny"

    assert effect(allow, tool=spec(name), default="deny") == expected
    assert effect(allow, Rule(effect="deny", tools=(glob,)), tool=spec(name)) == expected


# Reasons


def test_hostile_names_and_reasons_stay_on_one_line_that_can_be_encoded() -> None:
    evil = "x\n\x1b[31m\u202e\x7f\0"
    rules = Rules([Rule(effect="deny", users=(evil,), reason=evil)])
    surrogates = Rule.model_construct(effect="deny", reason="\ud800", users=("\udfff",))

    reasons = [
        rules.decide(Caller(user_id=evil), spec()).why,
        rules.decide(Caller(tools=(evil,)), spec(evil)).why,
        Rules([surrogates]).decide(Caller.model_construct(user_id="\udfff"), spec()).why,
    ]

    assert all(text.isprintable() for text in reasons)
    assert all(text.encode("utf-8") for text in reasons)


def test_long_lists_and_names_are_cut_in_reasons() -> None:
    users = ("ann", *(str(number) * 1000 for number in range(10_000)))
    rules = Rules([Rule(effect="deny", users=users, reason="r" * 10_000)])

    why = rules.decide(ANN, spec()).why

    assert len(why) < 1000
    assert "… 9,996 more]" in why


# Privileges


GIVEN = Rules(
    [], privileges={"ann": ["APPROVE"], "group:staff": ("ADMIN", "X"), "discord:7": ["Y"]}
)


def test_the_operator_adds_privileges_to_those_of_the_session_unless_it_is_from_a_key() -> None:
    caller = ANN.model_copy(update={"privileges": frozenset({"OWN"})})

    assert GIVEN.privileges_of(caller) == {"OWN", "APPROVE", "ADMIN", "X"}
    assert GIVEN.privileges_of(caller, from_key=True) == {"OWN"}


@each_row(
    "caller",
    [
        Caller(),
        Caller(user_id="group:staff"),
        Caller(user_id="staff", platform="group"),
        Caller(user_id="ann", platform="discord"),
        Caller(user_id="7"),
        Caller(groups=frozenset({"ann", "group:staff"})),
    ],
)
def test_a_name_gives_no_privileges_of_others(caller: Caller) -> None:
    assert GIVEN.privileges_of(caller) == set()


# How a decision is found


def test_a_repeated_decision_matches_no_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, Any]] = [
        {"groups": ("group7",), "tools": ("team8_*",)},
        {"tools": ("*_of9", "team_*_of8")},
        {"toolkits": ("kit8_*",), "users": ("ann",)},
        {"privileges": ("P7",), "hints": ("destructive",)},
    ]
    rules = Rules([Rule(effect="deny", **fields) for fields in given])
    caller = Caller(user_id="ann", groups=frozenset({"group7"}), privileges=frozenset({"P7"}))
    tools = [spec("team7_list_of8", toolkit="kit9_x"), spec("tool499"), spec("Other-Tool")]
    first = [rules.decide(caller, tool) for tool in tools]
    monkeypatch.setattr(module.Globs, "match", None)
    monkeypatch.setattr(rules, "_rows", ())

    assert [rules.decide(caller, tool) for tool in tools] == first


@each_row("field", ["users", "groups", "privileges"])
def test_rules_of_other_callers_match_no_tool(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    conditions: Any = {field: ("other",), "tools": ("tool*",)}
    rules = Rules([Rule(effect="deny", **conditions)])
    monkeypatch.setattr(module.Globs, "match", None)

    assert rules.decide(Caller(user_id="bob"), spec("tool499")).effect == "allow"


NAMES = st.text("aAbB_-éａ", min_size=1, max_size=4)
LITERAL = st.sampled_from(["a", "B", "_", "-", "ab", "é", "ａ"])
WILD = st.sampled_from(["*", "*", "?", "[ab]", "[!a]", "[A-B]"])
GLOBS = st.lists(st.one_of(LITERAL, WILD), min_size=1, max_size=4).map(tuple)
"""As parts, for the oracle to tell letters from signs."""
USERS = st.sampled_from(["ann", "bob", "7", "discord:7", "*"])
GROUPS = st.sampled_from(["a", "b", "c", "*"])
HINTS = st.sampled_from(["read_only", "destructive"])


@st.composite
def rule_parts(draw: st.DrawFn) -> dict[str, Any]:
    fields: dict[str, st.SearchStrategy[list[Any]]] = {
        "users": st.lists(USERS, min_size=1, max_size=3),
        "groups": st.lists(GROUPS, min_size=1, max_size=2),
        "privileges": st.lists(GROUPS, min_size=1, max_size=2),
        "tools": st.lists(GLOBS, min_size=1, max_size=3),
        "toolkits": st.lists(GLOBS, min_size=1, max_size=2),
        "hints": st.lists(HINTS, min_size=1, max_size=2),
    }
    chosen = draw(st.sets(st.sampled_from(sorted(fields)), max_size=3))
    parts = {name: tuple(draw(fields[name])) for name in sorted(chosen)}
    return {"effect": draw(st.sampled_from(get_args(Effect))), **parts}


CALLERS = st.builds(
    Caller,
    user_id=st.sampled_from([None, "ann", "bob", "7"]),
    platform=st.sampled_from([None, None, "discord"]),
    groups=st.frozensets(st.sampled_from("abc")),
    privileges=st.frozensets(st.sampled_from("abc")),
    tools=st.sampled_from([("*",), ("*",), ("a*", "B"), ()]),
)
SPECS = st.builds(
    spec,
    NAMES,
    st.one_of(st.none(), NAMES),
    read_only=st.sampled_from([None, True, False]),
    destructive=st.sampled_from([None, True, False]),
)
RULES = st.lists(rule_parts(), max_size=12)
DEFAULTS = st.sampled_from(get_args(Effect))


def rule_of(parts: dict[str, Any]) -> Rule:
    given: dict[str, Any] = {
        name: tuple(map("".join, value)) if name in ("tools", "toolkits") else value
        for name, value in parts.items()
    }
    return Rule(**given)


def looks(text: str) -> str:
    return normalize("NFKC", normalize("NFKC", text).casefold()).replace("-", "_")


def glob_fits(parts: tuple[str, ...], name: str, says: Effect) -> bool:
    if fnmatchcase(name, "".join(parts)):
        return True
    alike = "".join(part.lower() if part[0] == "[" else looks(part) for part in parts)
    return says != "allow" and fnmatchcase(looks(name), alike)


def expected(
    caller: Caller, tool: ToolSpec, rules: list[dict[str, Any]], default: Effect
) -> tuple[Effect, int | None]:
    """One rule after the other."""
    if not any(fnmatchcase(tool.name, glob) for glob in caller.tools):
        return "deny", None
    for place, rule in enumerate(rules, 1):
        fields = [name for name in rule if name != "effect"]
        if all(
            any(fits(rule, name, value, caller, tool) for value in rule[name]) for name in fields
        ):
            return rule["effect"], place
    return default, None


def fits(rule: dict[str, Any], field: str, value: Any, caller: Caller, tool: ToolSpec) -> bool:
    match field:
        case "users":
            return value == "*" or (caller.user_id is not None and value == caller.who)
        case "groups":
            return value == "*" or value in caller.groups
        case "privileges":
            return value == "*" or value in caller.privileges
        case "tools":
            return glob_fits(value, tool.name, rule["effect"])
        case "toolkits":
            return tool.toolkit is not None and glob_fits(value, tool.toolkit.name, rule["effect"])
        case _:
            return getattr(tool.hints, value) is True


@given(CALLERS, SPECS, RULES, DEFAULTS)
@examples(300)
def test_the_first_matching_rule_decides_for_any_rules(
    caller: Caller, tool: ToolSpec, rules: list[dict[str, Any]], default: Effect
) -> None:
    decision = Rules([rule_of(parts) for parts in rules], default).decide(caller, tool)

    assert (decision.effect, decision.rule) == expected(caller, tool, rules, default)
    assert decision.why.isprintable()
