"""Tokens that find a session by its hash: in one process, until the session ends."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from toolkiln.security.sessions import NoSession, SessionService, token_hash
from toolkiln.store.store import open_store


@pytest.fixture
def sessions(tmp_path: Path) -> Iterator[SessionService]:
    """The sessions of a store."""
    with closing(open_store(tmp_path / "store.db")) as store:
        yield SessionService(lambda: store.sessions, lambda: 300.0)


def test_an_alias_finds_the_session_of_its_hash(sessions: SessionService) -> None:
    made = sessions.create("ann")
    alias = sessions.alias(token_hash(made.token))

    assert sessions.find(alias) == sessions.find(made.token)
    assert alias == sessions.alias(token_hash(made.token))
    assert made.token not in alias


def test_an_alias_of_another_process_or_a_forged_one_finds_nothing(
    tmp_path: Path, sessions: SessionService
) -> None:
    hashed = token_hash(sessions.create("ann").token)
    alias = sessions.alias(hashed)
    wrong = "0" if alias[10] != "0" else "1"
    forged = (hashed, f"ta_{hashed}", f"ta_{'0' * 64}{hashed}", alias + "\ud800",
              alias[:10] + wrong + alias[11:], "ta_", sessions.alias(""))  # fmt: skip

    for token in forged:
        with pytest.raises(NoSession):
            sessions.find(token)
    with closing(open_store(tmp_path / "store.db")) as store, pytest.raises(NoSession):
        SessionService(lambda: store.sessions, lambda: 300.0).find(alias)


def test_a_session_is_renewed_and_ended_by_its_alias(sessions: SessionService) -> None:
    made = sessions.create("ann")
    alias = sessions.alias(token_hash(made.token))
    sessions.renew(alias, 1000.0)
    (((_, left),)) = sessions.alive()
    ended = sessions.end(alias)

    assert left > 900
    assert ended
    for token in (made.token, alias):
        with pytest.raises(NoSession):
            sessions.find(token)
