"""Stand-ins: what is imported from another framework, and who wins when there are several."""

import pytest

from toolkiln.kiln import Kiln
from toolkiln.spec.reader import read

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOOLS = {
    "placeholders.py": '''
        from open_webui.models.files import Files, FileModel
        from open_webui.utils import misc
        import open_webui.internal.db

        router = misc.make_router(prefix="/files")


        class Stored(FileModel):
            """A class of the framework, extended."""


        @misc.cached(seconds=60)
        @misc.logged
        def shout(text: str, file: FileModel | None = None) -> str:
            """Convert a text to capital letters.

            Args:
                text: The text.
                file: Not used.
            """
            return text.upper()


        def stored(name: str) -> str:
            """Return a stored file.

            Args:
                name: The name of the file.
            """
            return Files.get_file_by_id(name).path
    ''',
    "beside/__init__.py": "",
    "beside/local.py": '''
        import open_webui


        def source() -> str:
            """Return where the module comes from."""
            return open_webui.WHO
    ''',
    "beside/open_webui.py": """WHO = "the module beside the file"\n""",
}


async def test_a_file_that_imports_unknown_parts_of_a_framework_is_imported(kiln: Kiln) -> None:
    result = await kiln.call("shout", {"text": "hello"})

    assert result.value == "HELLO", result.error


async def test_using_an_unavailable_part_names_it(kiln: Kiln) -> None:
    result = await kiln.call("stored", {"name": "x"})

    assert result.error is not None
    assert "open_webui.models.files.Files.get_file_by_id is not available" in result.error.message


async def test_a_module_beside_the_file_wins_over_the_stand_in(kiln: Kiln) -> None:
    result = await kiln.call("source")

    assert result.value == "the module beside the file", result.error


async def test_an_import_that_the_sandbox_provides_is_no_finding() -> None:
    reading = read("import open_webui.env\nimport elsewhere\n", "<memory>")

    unlisted = [f.message for f in reading.findings if f.rule == "unlisted-import"]
    assert len(unlisted) == 1
    assert "'elsewhere'" in unlisted[0]
