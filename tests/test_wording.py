"""Words that no longer occur: the private vocabulary that the redesign replaced."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORDS = re.compile(
    r"\b(told|tells|somebody|whoever|whatever|nobody|thereby|let go|at hand|errand|caretak\w*"
    r"|comes? about|what is (?:said|told|asked)|as it (?:is|stands)|see(?:s|n)? to it)\b"
    r"|'s business",
    re.IGNORECASE,
)
ALLOWED = {
    # The wire names of the previous release.
    ("src/toolkiln/fleet/rpc.py", "errand"),
    # Orders to a model that the lint looks for, in the words of those who write them.
    ("src/toolkiln/spec/checks/model_instructions.py", "told"),
    ("src/toolkiln/spec/checks/model_instructions.py", "whatever"),
}


def found(files: list[Path]) -> list[str]:
    places: list[str] = []
    for file in files:
        name = str(file.relative_to(ROOT))
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
            places.extend(
                f"{name}:{number}: {line.strip()}"
                for match in WORDS.finditer(line)
                if (name, match[0].lower()) not in ALLOWED
            )
    return places


def test_the_source_uses_no_banned_words() -> None:
    assert found(sorted((ROOT / "src" / "toolkiln").rglob("*.py"))) == []


def test_the_documentation_uses_no_banned_words() -> None:
    pages = [page for page in (ROOT / "docs").rglob("*.md") if "adr" not in page.parts]

    assert found(sorted([*pages, ROOT / "README.md", ROOT / "SECURITY.md"])) == []
