"""What of a tool can be found."""

from toolkiln.model.spec import Dialect, DocstringSection, Documentation, Toolkit, ToolSpec
from toolkiln.search.documents import SearchDocument, document, parameter_texts, weigh


def spec(**fields: object) -> ToolSpec:
    given: dict[str, object] = {
        "name": "convert",
        "description": "Convert an amount of money.",
        "parameters": {"type": "object", "properties": {}},
        "dialect": Dialect.FUNCTION,
        "entry": "convert",
        "display_name": "Convert",
        "digest": "0" * 64,
        "path": "convert.py",
        "line": 1,
    }
    return ToolSpec.model_validate({**given, **fields})


def test_all_that_a_tool_says_of_itself_is_in_its_document() -> None:
    found = document(
        spec(
            toolkit=Toolkit(name="bank", display_name="Bank desk", description="Everyday banking."),
            documentation=Documentation(
                text="Uses daily rates.",
                sections=(DocstringSection(title="When to use", body="For invoices."),),
                returns="The rounded sum.",
            ),
            parameters={
                "type": "object",
                "properties": {"target": {"description": "ISO code", "enum": ["EUR", "USD"]}},
            },
        )
    )

    terms = weigh(found).weights
    assert found.key == "convert"
    assert {"monei", "bank", "everydai", "daili", "invoic", "round", "target", "iso", "eur"} <= (
        terms.keys()
    )


def test_usages_of_the_author_and_of_the_past_count_once_each() -> None:
    found = document(spec(usages=("a", "b")), ["b", "c"])

    assert found.usages == ("a", "b", "c")


def test_what_examples_are_for_counts_as_usages() -> None:
    examples = """Change ten euros into dollars:

        >>> convert(10, "USD")
        The result is a text of words
        '11.2'

        Odd:
        A whole invoice at once:
        >>> convert(1000)
    """

    found = document(spec(documentation=Documentation(examples=examples)))

    assert found.usages == ("Change ten euros into dollars:", "A whole invoice at once:")


def test_of_many_usages_the_first_fifty_count() -> None:
    found = document(spec(usages=("mine",)), [f"prompt {number}" for number in range(1_000)])

    assert len(found.usages) == 50
    assert found.usages[:2] == ("mine", "prompt 0")


def test_parameters_are_read_at_every_depth() -> None:
    schema = {
        "properties": {
            "trip": {"properties": {"stop": {"description": "a town"}}},
            "many": {"items": {"properties": {"price": {"enum": [1, None]}}}},
            "odd": True,
        },
        "$defs": {"Guest": {"properties": {"surname": {"description": None}}}},
    }

    names, texts = parameter_texts(schema)

    assert names.split() == ["trip", "stop", "many", "price", "surname"]
    assert texts.split() == ["a", "town", "1", "None"]


def test_a_schema_that_contains_itself_is_read_to_an_end() -> None:
    schema: dict[str, object] = {"properties": {}}
    schema["properties"] = {"again": schema}

    names, _ = parameter_texts(schema)

    assert set(names.split()) == {"again"}


def test_another_content_has_another_fingerprint() -> None:
    versions = [
        SearchDocument("a", {"name": "a"}),
        SearchDocument("b", {"name": "a"}),
        SearchDocument("a", {"name": "b"}),
        SearchDocument("a", {"title": "a"}),
        SearchDocument("a", {"name": "a"}, ("x",)),
        SearchDocument("a", {"name": "a"}, ("x", "y")),
        SearchDocument("a", {"name": "a"}, ("xy",)),
    ]

    assert len({version.fingerprint for version in versions}) == len(versions)


def test_a_fingerprint_does_not_depend_on_the_order_of_fields() -> None:
    one = SearchDocument("a", {"name": "x", "description": "y"})
    other = SearchDocument("a", {"description": "y", "name": "x"})

    assert one.fingerprint == other.fingerprint


def test_a_lone_surrogate_does_not_keep_a_tool_from_being_indexed() -> None:
    odd = SearchDocument("a", {"name": "a", "description": "broken \ud800 text"})

    assert "broken" in weigh(odd).weights
    assert odd.fingerprint


def test_a_title_that_repeats_the_name_counts_once() -> None:
    plain = SearchDocument("send_mail", {"name": "send_mail"})
    titled = SearchDocument("send_mail", {"name": "send_mail", "title": "Send mail"})

    assert weigh(titled).weights == weigh(plain).weights
