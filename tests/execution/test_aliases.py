"""Tokens that stand for a session by its hash: in one process, and for as long as it holds."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from toolkiln.security.sessions import NoSession, SessionService, token_hash
from toolkiln.store.store import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(open_store(tmp_path / "store.db")) as opened:
        yield opened


@pytest.fixture
def sessions(store: Store) -> SessionService:
    return SessionService(lambda: store.sessions, lambda: 300.0)


def test_an_alias_finds_the_session_of_its_hash(sessions: SessionService) -> None:
    made = sessions.create("ann")
    alias = sessions.alias(token_hash(made.token))

    assert sessions.find(alias) == sessions.find(made.token)
    assert alias == sessions.alias(token_hash(made.token))
    assert made.token not in alias


def test_an_alias_means_nothing_to_another_process(store: Store, sessions: SessionService) -> None:
    alias = sessions.alias(token_hash(sessions.create("ann").token))
    other = SessionService(lambda: store.sessions, lambda: 300.0)

    with pytest.raises(NoSession):
        other.find(alias)


def test_an_alias_cannot_be_forged(sessions: SessionService) -> None:
    hashed = token_hash(sessions.create("ann").token)
    alias = sessions.alias(hashed)
    wrong = "0" if alias[10] != "0" else "1"

    for token in (hashed, f"ta_{hashed}", f"ta_{'0' * 64}{hashed}", alias + "\ud800",
                  alias[:10] + wrong + alias[11:], "ta_", sessions.alias("")):  # fmt: skip
        with pytest.raises(NoSession):
            sessions.find(token)


def test_a_session_that_is_ended_has_no_alias_any_more(sessions: SessionService) -> None:
    made = sessions.create("ann")
    alias = sessions.alias(token_hash(made.token))
    sessions.find(alias)
    sessions.end(made.token)

    with pytest.raises(NoSession):
        sessions.find(alias)


def test_a_session_is_renewed_and_ended_by_its_alias(sessions: SessionService) -> None:
    made = sessions.create("ann")
    alias = sessions.alias(token_hash(made.token))
    sessions.renew(alias, 1000.0)
    (((_, left),)) = sessions.alive()
    ended = sessions.end(alias)

    assert left > 900
    assert ended
    with pytest.raises(NoSession):
        sessions.find(made.token)
