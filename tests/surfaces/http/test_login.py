"""How wrong keys are answered when there are many of them."""

import asyncio

import pytest

from toolkiln.config import Settings
from toolkiln.security.authentication import Authenticator, KeyScope
from toolkiln.security.sessions import LOCAL_OPERATOR
from toolkiln.surfaces.http.responses import HttpProblem
from toolkiln.surfaces.web.app import Login

from .serving import SOON, Serving


async def test_wrong_keys_wait_and_keep_no_right_one_waiting(api: Serving) -> None:
    guarding = api.kiln.security
    key = guarding.keys.create("right", KeyScope(user_id="ann"), LOCAL_OPERATOR).text
    login = Login(Authenticator(guarding, Settings(require_key=True)), delay=SOON)
    waiting = [asyncio.create_task(login.open("tk_wrong", "")) for _ in range(20)]
    async with asyncio.timeout(SOON):
        while login.delayed < 20:
            await asyncio.sleep(0)

    with pytest.raises(HttpProblem) as one_more:
        await login.open("tk_wrong", "")
    opened = await login.open(key, "")

    assert one_more.value.problem.code == "rate_limited"
    assert opened.token
    assert not any(task.done() for task in waiting)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
