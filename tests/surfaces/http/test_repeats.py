"""Answers that are kept for an Idempotency-Key, shared among callers."""

import pytest
from starlette.responses import Response

from toolkiln.surfaces.http.app import IdempotencyCache


async def test_many_keys_of_one_caller_do_not_push_out_the_answer_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("toolkiln.surfaces.http.app._MAX_ENTRIES", 5)
    repeats, done = IdempotencyCache(), []

    async def ask(key: str, who: str) -> None:
        async def handle() -> Response:
            done.append((key, who))
            return Response()

        await repeats.once(key, (who, "session"), b"", handle)

    await ask("mine", "bob")
    for number in range(20):
        await ask(f"{number}", "ann")
    await ask("mine", "bob")

    assert done.count(("mine", "bob")) == 1
    assert len(done) == 21
