"""Docstrings as people write them, tidy and otherwise."""

import inspect
import textwrap

from hypothesis import example, given
from hypothesis import strategies as st

from properties import examples
from tables import each_row
from toolkiln.docstrings import parser
from toolkiln.model.spec import DocstringSection, Documentation


def parse(docstring: str) -> Documentation:
    return Documentation.of(parser.parse(docstring))


def read(docstring: str) -> Documentation:
    return parse(textwrap.dedent(docstring))


def test_google_docstring_is_taken_apart() -> None:
    documentation = parse(
        """Convert an amount.

        Uses daily rates.

        Args:
            amount (float): How much.
            to: Currency to convert to,
                as a code.

        Returns:
            dict: The amount and the rate.

        Raises:
            ValueError: If a currency is unknown.
            LookupError, OSError: If the rates are gone.

        Examples:
            >>> convert(1, "EUR")
            {"amount": 1}
        """
    )

    assert documentation.text == "Convert an amount.\n\nUses daily rates."
    assert [(p.name, p.text) for p in documentation.parameters] == [
        ("amount", "How much."),
        ("to", "Currency to convert to,\nas a code."),
    ]
    assert documentation.returns == "The amount and the rate."
    assert [(r.type, r.text) for r in documentation.raises] == [
        ("ValueError", "If a currency is unknown."),
        ("LookupError", "If the rates are gone."),
        ("OSError", "If the rates are gone."),
    ]
    assert documentation.examples == '>>> convert(1, "EUR")\n{"amount": 1}'
    assert documentation.sections == ()


def test_numpy_docstring_is_taken_apart() -> None:
    documentation = read(
        """
        Convert an amount.

        Parameters
        ----------
        amount : float, default 3
            How much.
        x, y : int
            Where.

            Both of them.
        mode : {'fast', 'slow'}, optional
        flag
            Whether to.
        *args
            Others.
        **kwargs : dict
            More.

        Returns
        -------
        float
            The amount.

        Raises
        ------
        ValueError
            If a currency is unknown.

        Notes
        -----
        Slow.

        Examples
        --------
        >>> convert(1)

        Then again:

        >>> convert(2)
        """
    )

    assert documentation.text == "Convert an amount."
    assert {p.name: p.text for p in documentation.parameters} == {
        "amount": "How much.",
        "x": "Where.\n\nBoth of them.",
        "y": "Where.\n\nBoth of them.",
        "mode": "",
        "flag": "Whether to.",
        "args": "Others.",
        "kwargs": "More.",
    }
    assert documentation.returns == "The amount."
    assert [(r.type, r.text) for r in documentation.raises] == [
        ("ValueError", "If a currency is unknown.")
    ]
    assert documentation.sections == (DocstringSection(title="Notes", body="Slow."),)
    assert documentation.examples == ">>> convert(1)\n\nThen again:\n\n>>> convert(2)"


def test_sphinx_docstring_is_taken_apart() -> None:
    documentation = read(
        """
        Convert an amount.

        :param amount: How much.
        :param str to: Currency to convert to,
            as a code.
        :param dict[str, int] rates:
            The rates.
        :param \\*args: Others.
        :type amount: float
        :param loose: Goes on
        without indentation.
        :returns: The amount.
        :rtype: float
        :raises ValueError: If a currency is unknown.

        And a closing word.
        """
    )

    assert documentation.text == "Convert an amount.\n\nAnd a closing word."
    assert {p.name: p.text for p in documentation.parameters} == {
        "amount": "How much.",
        "to": "Currency to convert to,\nas a code.",
        "rates": "The rates.",
        "args": "Others.",
        "loose": "Goes on\nwithout indentation.",
    }
    assert documentation.returns == "The amount."
    assert [(r.type, r.text) for r in documentation.raises] == [
        ("ValueError", "If a currency is unknown.")
    ]


def test_epytext_fields_are_read() -> None:
    documentation = parse(
        "Do.\n\n@param amount: How much.\n@type amount: float\n@return: The amount.\n"
        "@raise ValueError: If not.\n@note: Slow."
    )

    assert [(p.name, p.text) for p in documentation.parameters] == [("amount", "How much.")]
    assert documentation.returns == "The amount."
    assert [r.type for r in documentation.raises] == ["ValueError"]
    assert documentation.sections == (DocstringSection(title="Note", body="Slow."),)


@each_row(
    "header",
    [
        "Args:", "Arguments:", "Parameters:", "Params:", "Keyword Args:", "Keyword Arguments:",
        "Other Parameters:", "args:", "ARGS:", "Args :", "Args::", "**Args**", "**Parameters:**",
        "**Arguments**:",
    ],
)  # fmt: skip
def test_parameters_are_found_below_any_header_without_a_blank_line(header: str) -> None:
    documentation = parse(f"Do it.\n{header}\n    x: The x.\n    y: The y.")

    assert [(p.name, p.text) for p in documentation.parameters] == [
        ("x", "The x."),
        ("y", "The y."),
    ]
    assert documentation.text == "Do it."


@each_row(
    "line, text",
    [
        ("x: The x.", "The x."),
        ("x (int): The x.", "The x."),
        ("x (int, optional): The x.", "The x."),
        ("x (Callable[[int], tuple(str)], optional): X (as such): yes.", "X (as such): yes."),
        ("x(int): The x.", "The x."),
        ("x : The x.", "The x."),
        ("x:The x.", "The x."),
        ("x - The x.", "The x."),
        ("x (int) -- The x.", "The x."),
        ("x – The x.", "The x."),
        ("- x: The x.", "The x."),
        ("* `x` (int): The x.", "The x."),
        ("`x`: The x.", "The x."),
        ("- **x**: The x.", "The x."),
        ("**x** (int): The x.", "The x."),
        ("*x: The x.", "The x."),
        ("*x*: The x.", "The x."),
        ("**x: The x.", "The x."),
        ("\\*\\*x: The x.", "The x."),
        ("x:\n        The x.", "The x."),
        ("x (int):\n        The x.", "The x."),
        ("x : int\n        The x.", "The x."),
        ("x : int, default 3\n        The x.", "The x."),
        ("x: Any:\n        - a: one\n          more\n        - b", "Any:\n- a: one\n  more\n- b"),
        ("x: The x\n       goes on here.", "The x\ngoes on here."),
        ("x: The x\n    goes on here.", "The x\ngoes on here."),
        ("x: A dict with\n        name: the name", "A dict with\nname: the name"),
        ("x: The x.\n\n        More of it.", "The x.\n\nMore of it."),
        ("x: See http://example.org/x: there.", "See http://example.org/x: there."),
    ],
)  # fmt: skip
def test_an_item_is_read_however_it_is_written(line: str, text: str) -> None:
    documentation = parse(f"Do it.\n\nArgs:\n    {line}\n    after: The last.")

    assert [(p.name, p.text) for p in documentation.parameters] == [
        ("x", text),
        ("after", "The last."),
    ]
    assert documentation.text == "Do it."


@each_row(
    "docstring, parameters, text",
    [
        ("Do.\nArgs:\n\n    x: Ex.\n\n\n    y: Why.\n", {"x": "Ex.", "y": "Why."}, "Do."),
        ("Do.\nArgs:\n     x: Ex.\n    y: Why.\n", {"x": "Ex.", "y": "Why."}, "Do."),
        ("Args:\nx: Ex.\n  More.\n\ny: Why.\n\nEnd.", {"x": "Ex.\nMore.", "y": "Why."}, "End."),
        ("Args:\n    größe: Wie groß.\n    名前: 名。", {"größe": "Wie groß.", "名前": "名。"}, ""),
        (":param x:\n:param x: One.\n:param x: Two.", {"x": "One."}, ""),
    ],
)
def test_parameters_are_read_with_any_layout_and_the_first_description_counts(
    docstring: str, parameters: dict[str, str], text: str
) -> None:
    documentation = parse(docstring)

    assert {p.name: p.text for p in documentation.parameters} == parameters
    assert documentation.text == text


def test_sections_indented_like_parameters_are_sections() -> None:
    documentation = parse("Do.\n\nArgs:\n    x: The x.\n    Returns: It.\n    Note: Slow.\n")

    assert [p.name for p in documentation.parameters] == ["x"]
    assert documentation.returns == "It."
    assert documentation.sections == (DocstringSection(title="Note", body="Slow."),)


def test_prose_in_a_parameter_section_is_not_lost() -> None:
    alone = parse("Do.\n\nArgs:\n    A dictionary of things.")
    beside = parse("Do.\n\nArgs:\n    All in metres.\n    x: The x.\n\n    And so on.")

    assert alone.sections == (DocstringSection(title="Args", body="A dictionary of things."),)
    assert beside.text == "Do.\n\nAll in metres.\n\nAnd so on."


@each_row(
    "nothing", ["Args: none", "Args: None.", "Args:\n    None", "Args:\n", "Parameters\n---\nNone"]
)
def test_no_arguments_are_no_arguments(nothing: str) -> None:
    documentation = parse(f"Do it.\n\n{nothing}\n\nReturns: the number\n")

    assert documentation == Documentation(text="Do it.", returns="the number")


@each_row(
    "text",
    [
        "Examples of things to do: eat, sleep.",
        "The following:\n\n- this\n- that",
        "Do it.\nThe following:\n    this\n\nand that",
        "Parameters: see the manual.",
        "Arguments against this: none.",
        "Returns the note: a text.",
        "Do not take a\nnote: it is long.",
        "You must **never** do it.",
        "You must do it\n**before**\nnoon.",
        "**Never** do it twice.",
        "**It deletes everything.**",
        "**Weather** of today",
        "**Weather:** of today",
        "- **Important:** in a list",
        "A table:\n\na | b\n--|--\n1 | 2",
        "Title of it all\n===============\n\nText.",
        "One.\n\n---\n\nTwo.",
        "Do it.\n\nSee `http://example.org`::\n\n    code",
        "Usage:",
        "Use ```this``` or\n```that```",
        "An open fence\n```\nfoo",
        ".. image:: x.png",
        ":math:`x` is: this",
        "@tool\n@decorated: no",
        "Do it.\n\n```python\nArgs:\n    x: y\n>>> 1\n```\n\nDone.",
        "Do it.\n\n**Handle with care**",
    ],
)
def test_text_that_only_resembles_a_header_stays(text: str) -> None:
    assert parse(text) == Documentation(text=text)


@each_row("header", ["**Important**", "**Important:**", "**Important**:", "** Important **"])
@each_row("above", ["Do it.\n", "Do it.\n\n"])
@each_row("between", ["\n", "\n\n", "\n    "])
def test_bold_headers_open_sections(header: str, above: str, between: str) -> None:
    documentation = parse(f"{above}{header}{between}Never twice.\n\n**Use cases:**\n- one\n- two")

    assert documentation.text == "Do it."
    assert documentation.sections == (
        DocstringSection(title="Important", body="Never twice."),
        DocstringSection(title="Use cases", body="- one\n- two"),
    )


@each_row(
    "line, title, body",
    [
        ("**Important:** Never twice.", "Important", "Never twice."),
        ("**When to use**: Always.", "When to use", "Always."),
        ("**WARNING: it deletes.**", "WARNING", "it deletes."),
        ("**⚠️ Important:** Never.", "⚠️ Important", "Never."),
        ("**Behaviour in space:** Odd.\nVery.", "Behaviour in space", "Odd.\nVery."),
        ("Note: it is slow\nand dear.", "Note", "it is slow\nand dear."),
        ("Note:\n    it is slow\n\n    and dear.", "Note", "it is slow\n\nand dear."),
        ("Warning:\nit is slow", "Warning", "it is slow"),
        ("Use cases:\n\n- one\n- two", "Use cases", "- one\n- two"),
        ("When to use this tool:\n    Often.", "When to use this tool", "Often."),
        ("Differences from grep:\n    Fast.", "Differences from grep", "Fast."),
        ("See Also:\n    other", "See Also", "other"),
        ("Attributes:\n    x: The x.", "Attributes", "x: The x."),
        ("Todo:\n    * all", "Todo", "* all"),
        (".. note:: slow\n   and dear", "Note", "slow\nand dear"),
        (".. warning::\n\n    slow", "Warning", "slow"),
        (".. admonition:: By the way\n\n   slow", "By the way", "slow"),
        (".. seealso:: other", "See Also", "other"),
        ("Custom part\n-----------\nText.", "Custom part", "Text."),
        ("Notes:\n------\nText.", "Notes", "Text."),
    ],
)
def test_free_sections_keep_title_and_body(line: str, title: str, body: str) -> None:
    documentation = parse(f"Do it.\n\n{line}\n")

    assert documentation == Documentation(
        text="Do it.", sections=(DocstringSection(title=title, body=body),)
    )


def test_bold_section_ends_at_the_next_section_of_any_style() -> None:
    documentation = parse("Do.\n\n**Important**\nYes.\n\nArgs:\n    x: The x.\n\nAnd more.")

    assert documentation.sections == (DocstringSection(title="Important", body="Yes."),)
    assert [p.name for p in documentation.parameters] == ["x"]
    assert documentation.text == "Do.\n\nAnd more."


@each_row(
    "docstring, examples",
    [
        ("Examples:\n    >>> f()\n    1\n\n    >>> g()", ">>> f()\n1\n\n>>> g()"),
        ("Example: f(1)", "f(1)"),
        ("Example::\n\n    for x in y:\n        f(x)", "for x in y:\n    f(x)"),
        ("Example:\nf(1)", "f(1)"),
        ("Examples\n--------\n>>> f()\n1", ">>> f()\n1"),
        (".. code-block:: python\n   :linenos:\n\n   if x:\n       f()", "if x:\n    f()"),
        ("Example:\n\n.. code-block:: python\n\n    f()", "f()"),
        (">>> f()\n1", ">>> f()\n1"),
        ("Example:\n\n>>> f()\n1\n\n>>> g()", ">>> f()\n1\n\n>>> g()"),
        ("Examples:\n    ```python\n    Args:\n        x\n    ```", "```python\nArgs:\n    x\n```"),
        ("Examples:\n\n```python\nf()\n\ng()\n```", "```python\nf()\n\ng()\n```"),
        ("**Example:**\n```python\nReturns: x\n```", "```python\nReturns: x\n```"),
        ("**Examples**\n>>> f()", ">>> f()"),
    ],
)
def test_examples_keep_their_relative_indentation(docstring: str, examples: str) -> None:
    assert parse(f"Do it.\n\n{docstring}\n") == Documentation(text="Do it.", examples=examples)


def test_after_a_doctest_or_an_inline_admonition_there_is_text_again() -> None:
    documentation = parse("Do it.\n\n>>> f()\n1\n\nMore.\n\nNote: slow.\n\nLong story.")

    note = DocstringSection(title="Note", body="slow.")
    assert documentation == Documentation(
        text="Do it.\n\nMore.\n\nLong story.", examples=">>> f()\n1", sections=(note,)
    )


@each_row(
    "body, returns",
    [
        ("dict: The thing.", "The thing."),
        ("dict[str, list[int]]: The thing.", "The thing."),
        ("list of str: The thing.", "The thing."),
        ("int or None: The thing.", "The thing."),
        ("int | list[str]: The thing.", "The thing."),
        ("ToolResult: The thing.", "The thing."),
        ("np.ndarray: The thing.", "The thing."),
        ("dict:\n        The thing.", "The thing."),
        ("float\n        The thing.", "The thing."),
        ("dict: With\n        - a: one\n        - b", "With\n- a: one\n- b"),
        ("A note: bla", "A note: bla"),
        ("Note: bla", "Note: bla"),
        ("Success: True", "Success: True"),
        ("The thing.\n\n    And more.", "The thing.\n\nAnd more."),
        ("str", "str"),
    ],
)
@each_row("header", ["Returns:\n    ", "Yields:\n    ", "Returns: ", "**Returns:**\n    "])
def test_type_before_the_result_is_dropped_and_prose_is_not(
    body: str, returns: str, header: str
) -> None:
    assert parse(f"Do it.\n\n{header}{body}\n") == Documentation(text="Do it.", returns=returns)


@each_row(
    "body, returns",
    [
        ("float\n    The thing.", "The thing."),
        ("x : float\n    The thing.", "The thing."),
        ("x : float\n    The thing.\ny : int\n    Other.", "x: The thing.\ny: Other."),
        ("The thing as such.", "The thing as such."),
    ],
)
def test_numpy_results_lose_their_types(body: str, returns: str) -> None:
    assert parse(f"Do it.\n\nReturns\n-------\n{body}\n").returns == returns


@each_row(
    "body, raises",
    [
        ("ValueError: If not.", [("ValueError", "If not.")]),
        ("ValueError if not.", [("ValueError", "if not.")]),
        ("`a.Error`: If not.", [("a.Error", "If not.")]),
        (":class:`~a.Error`: If not.", [("a.Error", "If not.")]),
        ("- ValueError - If not,\n        really.", [("ValueError", "If not,\nreally.")]),
        ("None", []),
        ("Whatever goes wrong.", [("Exception", "Whatever goes wrong.")]),
    ],
)
def test_exceptions_are_read(body: str, raises: list[tuple[str, str]]) -> None:
    assert [(r.type, r.text) for r in parse(f"Do.\n\n:raises: {body}").raises] == raises
    assert [(r.type, r.text) for r in parse(f"Do.\n\nRaises:\n    {body}").raises] == raises


def test_styles_may_be_mixed() -> None:
    documentation = read(
        """
        Do it.

        Args:
            a: One.

        Parameters
        ----------
        b : int
            Two.

        :param c: Three.
        @param d: Four.

        **Returns**: Five.
        """
    )

    assert [p.text for p in documentation.parameters] == ["One.", "Two.", "Three.", "Four."]
    assert documentation.returns == "Five."
    assert documentation.text == "Do it."


def test_tabs_and_windows_line_ends_make_no_difference() -> None:
    tabbed = "Do it.\r\n\r\n\tArgs:\r\n\t\tx: The x.\r\n\r\n\tReturns:\r\n\t\tIt."
    plain = tabbed.replace("\r\n", "\n").expandtabs()

    assert parse(tabbed) == parse(plain)
    assert parse(plain).returns == "It."


@each_row("docstring", ["", " ", "\n\n", "\t\n \n"])
def test_empty_docstring_says_nothing(docstring: str) -> None:
    assert parse(docstring) == Documentation()


_WORDS = st.sampled_from(
    """
    Args: Returns: Raises: Examples: Note: **Important** **Use:** :param @param: ``` ~~~ >>> ..
    note:: code-block:: --- ====== Parameters x: x y : int (str): - * ** foo. é \\* ( [ ] ) , `
    """.split()  # noqa: SIM905
)
_JUMBLE = st.lists(
    st.one_of(_WORDS, st.sampled_from(["\n", "\n\n", "\n    ", " ", "\t", "\r\n", "\x0c"])),
    max_size=60,
).map(" ".join)


@given(st.one_of(st.text(), _JUMBLE, _JUMBLE.map(lambda text: text.replace(" \n ", "\n"))))
@examples(400)
@example("\n**:**\n****\n** **\n:param:\n:param :\nArgs:\n:")
@example("**a:**:\n\n.. note::\n")
def test_any_text_is_a_docstring(docstring: str) -> None:
    assert isinstance(parse(docstring), Documentation)


@given(st.text(alphabet="ab Z\n\tö.,()'\"", max_size=200))
@examples(400)
def test_text_without_headers_comes_back_unchanged(docstring: str) -> None:
    documentation = parse(docstring)

    kept, expected = documentation.text.split("\n"), inspect.cleandoc(docstring).split("\n")
    while expected and not expected[0].strip():
        del expected[0]
    while expected and not expected[-1].strip():
        del expected[-1]
    assert [line.rstrip() for line in kept if line.strip()] == [
        line.rstrip() for line in expected if line.strip()
    ]
    assert documentation == Documentation(text=documentation.text)


_NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,10}", fullmatch=True)
_PROSE = st.from_regex(r"[A-Z][a-z]{1,8}( [a-z]{1,8}){1,5}\.", fullmatch=True)


@given(st.dictionaries(_NAMES, _PROSE, min_size=1, max_size=6))
@examples(100)
def test_every_style_describes_the_same_parameters(texts: dict[str, str]) -> None:
    google = "Do.\n\nArgs:\n" + "".join(f"    {n} (int): {t}\n" for n, t in texts.items())
    numpy = "Do.\n\nParameters\n----------\n"
    numpy += "".join(f"{n} : int\n    {t}\n" for n, t in texts.items())
    sphinx = "Do.\n\n" + "".join(f":param int {n}: {t}\n" for n, t in texts.items())

    for docstring in (google, numpy, sphinx):
        documentation = parse(docstring)
        assert {p.name: p.text for p in documentation.parameters} == texts
        assert documentation.text == "Do."


@each_row(
    "unit",
    [
        "a", "\n", " ", "    \n", " \n  a", "\t", "Args:\n", "Args:\n    x: y\n", "Note: x\n",
        "**a**\n", "**a:**\n", "**", "```\n", "~~~\n```\n", ">>> a\n", ":param x: y\n",
        ".. note::\n", "Title\n-----\n", "---\n", "Args:\n    x (", "(", "x[", "x, ",
        "Returns: x[]|", "Returns: a.", "Examples:\n\n",
    ],
    batches=6,
)  # fmt: skip
def test_a_megabyte_is_read(unit: str) -> None:
    assert parse(unit * (1_000_000 // len(unit)))
    assert parse("Args:\n    " + unit * (100_000 // len(unit)))
