"""Secrets: where they are looked for, how they are kept, and that nothing shows them."""

import os
import pickle
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import keyring
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keyring.backends.fail import Keyring as NoKeyring
from keyrings.alt.file import PlaintextKeyring  # type: ignore[import-untyped]

from tables import each_row
from toolkiln.errors import InputError, ToolkilnError
from toolkiln.security.masking import SecretError
from toolkiln.security.secrets import Secrets, find_references, resolve_references

VALUE = "correct horse"


def written(file: Path, text: str, mode: int = 0o600) -> Path:
    """Write a file; a lone surrogate becomes a byte that is no UTF-8."""
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    file.chmod(mode)
    return file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "secrets.toml"


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[PlaintextKeyring]:
    before = keyring.get_keyring()
    backend = PlaintextKeyring()
    backend.file_path = str(tmp_path / "ring.cfg")
    keyring.set_keyring(backend)
    yield backend
    keyring.set_keyring(before)


def test_places_are_asked_in_order(tmp_path: Path, ring: PlaintextKeyring) -> None:
    ring.set_password("toolkiln", "api.key", "from the keyring")
    toml = written(tmp_path / "s.toml", '"api.key" = "from the toml"\n')
    other = written(tmp_path / "other", "from the file\n\n")
    environ = {"TOOLKILN_SECRET_API_KEY": "from the variable"}
    named = {"TOOLKILN_SECRET_API_KEY_FILE": str(other)}
    nowhere = tmp_path / "absent"

    assert Secrets(environ | named, toml, keyring=True).get("api.key") == "from the variable"
    assert Secrets(named, toml, keyring=True).get("api.key") == "from the file\n"
    assert Secrets({}, toml, keyring=True).get("api.key") == "from the toml"
    assert Secrets({}, nowhere, keyring=True).get("api.key") == "from the keyring"
    assert Secrets({}, nowhere, keyring=True).get("other") is None
    assert Secrets({}, nowhere).get("api.key") is None


def test_a_variable_that_names_a_file_is_never_a_value(tmp_path: Path) -> None:
    path = str(written(tmp_path / "key", VALUE))

    secrets = Secrets({"TOOLKILN_SECRET_KEY_FILE": path}, tmp_path / "absent")

    assert secrets.get("KEY_FILE") is None
    assert secrets.get("key") == VALUE


def test_the_keyring_is_not_loaded_unless_it_is_wanted() -> None:
    program = (
        "import sys, pathlib\nfrom toolkiln.security.secrets import Secrets\n"
        "Secrets({}, pathlib.Path('absent')).get('KEY')\nprint('keyring' in sys.modules)"
    )

    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert ran.stdout.strip() == "False", ran.stderr


def test_a_keyring_without_a_package_or_backend_says_so(
    tmp_path: Path, ring: PlaintextKeyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = Secrets({}, tmp_path / "absent", keyring=True)

    keyring.set_keyring(NoKeyring())  # type: ignore[no-untyped-call]
    with pytest.raises(SecretError) as no_backend:
        secrets.get("KEY")
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(SecretError) as no_package:
        secrets.get("KEY")

    assert "backend" in (no_backend.value.hint or "")
    assert "toolkiln[keyring]" in (no_package.value.hint or "")


@each_row("mode", [0o640, 0o604, 0o620, 0o602, 0o644, 0o666, 0o777])
def test_a_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    toml = written(tmp_path / "s.toml", f'KEY = "{VALUE}"', mode)

    with pytest.raises(SecretError) as caught:
        Secrets({}, toml).get("KEY")

    assert caught.value.hint == f"chmod 600 {toml}"
    for private in (0o600, 0o400):
        toml.chmod(private)
        assert Secrets({}, toml).get("KEY") == VALUE


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    toml = written(tmp_path / "s.toml", f'KEY = "{VALUE}"')
    os.chown(toml, 12345, 12345)

    with pytest.raises(SecretError, match="another user"):
        Secrets({}, toml).get("KEY")


def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    pipe, link, folder = tmp_path / "pipe", tmp_path / "link", tmp_path / "folder"
    os.mkfifo(pipe, 0o600)
    link.symlink_to(written(tmp_path / "s.toml", f'KEY = "{VALUE}"'))
    folder.mkdir(0o700)

    for path in (pipe, link, folder):
        with pytest.raises(SecretError):
            Secrets({}, path).get("KEY")
    for named in (pipe, folder, tmp_path / "absent", "\0"):
        with pytest.raises(SecretError, match="TOOLKILN_SECRET_KEY_FILE"):
            Secrets({"TOOLKILN_SECRET_KEY_FILE": str(named)}, tmp_path / "absent").get("KEY")


def test_a_file_is_read_again_once_it_has_changed(tmp_path: Path) -> None:
    toml = written(tmp_path / "s.toml", 'KEY = "first value"')
    secrets = Secrets({}, toml)
    first = secrets.get("KEY")

    written(toml, 'KEY = "the second value"')
    second = secrets.get("KEY")
    toml.chmod(0o644)

    assert (first, second) == ("first value", "the second value")
    with pytest.raises(SecretError, match="others"):
        secrets.get("KEY")


@each_row(
    "text",
    [
        f"KEY = {VALUE}", f'KEY = "{VALUE}', f'KEY = "{VALUE}"\nKEY = "{VALUE}"',
        f'a.b = "{VALUE}"', f'[{VALUE.replace(" ", "")}]', f'KEY = ["{VALUE}"]', "KEY = 12345678",
        f'"{VALUE}" = "KEY"', "KEY = " + "[" * 100_000, "x" * 2_000_000, 'KEY = "correct \udcff"',
    ],
)  # fmt: skip
def test_a_file_of_something_else_is_refused_without_being_shown(tmp_path: Path, text: str) -> None:
    toml = written(tmp_path / "s.toml", text)

    with pytest.raises(SecretError) as caught:
        Secrets({}, toml).sources()

    shown = f"{caught.value!r} {caught.value.hint} {caught.value.__cause__!r}"
    assert VALUE not in shown
    assert "correct" not in shown
    assert caught.value.__context__ is None
    assert ("UTF-8" in shown) == ("\udcff" in text)


@each_row("value", ["", "abc", "nul\0nul", "lone\udcff"])
def test_an_unusable_value_is_refused_wherever_it_comes_from(file: Path, value: str) -> None:
    secrets = Secrets({"TOOLKILN_SECRET_KEY": value}, file)

    with pytest.raises(SecretError, match="KEY") as got:
        secrets.get("KEY")
    with pytest.raises(InputError, match="KEY") as set_:
        secrets.set("KEY", value)

    assert not value or value not in f"{got.value} {set_.value}"
    assert not file.exists()


@each_row("name", ["", "1st", "a b", "a\n", "ä", "a" * 101, "-a", "../x", "a=b"])
def test_what_is_no_name_is_refused(file: Path, name: str) -> None:
    secrets = Secrets({}, file)

    for use in (secrets.get, secrets.remove, lambda name: secrets.set(name, VALUE)):
        with pytest.raises(InputError):
            use(name)


def test_the_file_is_its_owners_only_from_the_start(file: Path) -> None:
    before = os.umask(0)
    try:
        Secrets({}, file).set("KEY", VALUE)
    finally:
        os.umask(before)

    modes = {stat.S_IMODE(path.stat().st_mode) for path in file.parent.iterdir()}
    assert modes == {0o600}
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_what_is_set_can_be_read_and_removed(file: Path) -> None:
    secrets = Secrets({}, file)
    assert secrets.remove("KEY") is False
    assert not file.exists()

    secrets.set("a.b@c-d", VALUE)
    secrets.set("KEY", "other value")
    secrets.set("KEY", "third value")

    assert Secrets({}, file).get("a.b@c-d") == VALUE
    assert secrets.get("KEY") == "third value"
    assert secrets.remove("KEY") is True
    assert secrets.remove("KEY") is False
    assert secrets.get("KEY") is None
    assert secrets.get("a.b@c-d") == VALUE
    assert sorted(path.name for path in file.parent.iterdir()) == [file.name, f"{file.name}.lock"]


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=4)


@given(value=TEXT | st.sampled_from(['"""\\', "\r\n\x85\u2028", "\x01\x1b[0m\x7f", "'''\n#x"]))
def test_any_text_comes_back_as_set(value: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("any") / "secrets.toml"

    Secrets({}, file).set("KEY", value)

    assert tomllib.loads(file.read_bytes().decode())["KEY"] == value
    assert Secrets({}, file).get("KEY") == value


def test_writers_at_the_same_time_lose_nothing(file: Path) -> None:
    def add(number: int) -> None:
        Secrets({}, file).set(f"KEY_{number}", f"value {number}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))

    assert len(Secrets({}, file).sources()) == 40


def test_a_change_that_cannot_be_written_leaves_the_file_and_nothing_else(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = Secrets({}, file)
    secrets.set("KEY", VALUE)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(SecretError, match="No space left"):
            secrets.set("KEY", "other value")

    assert secrets.get("KEY") == VALUE
    assert len(list(file.parent.iterdir())) == 2


def test_sources_say_where_and_never_what(tmp_path: Path) -> None:
    toml = written(
        tmp_path / "s.toml", f'"api.key" = "{VALUE}"\nPLAIN = "{VALUE}"\nBOTH = "{VALUE}"'
    )
    environ = {
        "TOOLKILN_SECRET_API_KEY": VALUE,
        "TOOLKILN_SECRET_API_KEY_FILE": "/absent",
        "TOOLKILN_SECRET_MORE_FILE": "/absent",
        "TOOLKILN_SECRET_BOTH_FILE": "/absent",
        "TOOLKILN_SECRETS_FILE": str(toml),
        "TOOLKILN_SECRET_": VALUE,
        "PATH": "/bin",
    }

    assert Secrets(environ, toml).sources() == {
        "BOTH": "$TOOLKILN_SECRET_BOTH_FILE",
        "MORE": "$TOOLKILN_SECRET_MORE_FILE",
        "PLAIN": str(toml),
        "api.key": "$TOOLKILN_SECRET_API_KEY",
    }


def test_secrets_show_no_value_and_cannot_be_pickled(file: Path) -> None:
    secrets = Secrets({"TOOLKILN_SECRET_A": VALUE}, file)
    secrets.set("KEY", VALUE)
    secrets.get("KEY")

    assert VALUE not in f"{secrets!r} {secrets}"
    with pytest.raises(TypeError):
        pickle.dumps(secrets)


def test_references_are_whole_strings_at_any_depth_but_not_keys() -> None:
    arguments = {
        "a": "secret:KEY",
        "b": [{"c": ("secret:api.key", 1)}, None],
        "secret:NOT": "secret:NOT and more",
        "d": "Secret:NOT",
        "e": "secret:",
        "f": "secret:NOT\n",
        "g": " secret:NOT",
    }

    assert find_references(arguments) == {"KEY", "api.key"}


def test_references_become_values_once_and_the_arguments_stay() -> None:
    arguments: dict[str, Any] = {"a": "secret:KEY", "b": [{"c": "secret:A"}], "secret:KEY": "x"}

    result = resolve_references(arguments, {"KEY": VALUE, "A": "secret:KEY"})

    assert result == {"a": VALUE, "b": [{"c": "secret:KEY"}], "secret:KEY": "x"}
    assert arguments == {"a": "secret:KEY", "b": [{"c": "secret:A"}], "secret:KEY": "x"}


def test_a_reference_without_a_value_is_an_error() -> None:
    with pytest.raises(ToolkilnError, match="KEY"):
        resolve_references({"a": "secret:KEY"}, {})


def test_references_in_deep_arguments_are_found_and_resolved() -> None:
    arguments: Any = "secret:KEY"
    for _ in range(5_000):
        arguments = {"in": [arguments]}

    result = resolve_references(arguments, {"KEY": VALUE})

    assert find_references(arguments) == {"KEY"}
    for _ in range(5_000):
        (result,) = result["in"]
    assert result == VALUE
