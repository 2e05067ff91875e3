"""Tools in a FastAPI application: one Kiln, opened and closed with it.

    cd examples && uvicorn fastapi_app:app
    curl "127.0.0.1:8000/convert?value=26.2&source=mi&target=km"

Asynchronous endpoints await `call`. FastAPI runs the others in threads: they use `call_sync`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException

from toolkiln import Kiln
from toolkiln.model import Result

kiln = Kiln("tools", dev=True)  # without dev: the versions that were admitted


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Close the Kiln with the application."""
    async with kiln:
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/convert")
async def convert(value: float, source: str, target: str) -> Any:
    """Convert a value between units."""
    given = {"value": value, "source": source, "target": target}
    return answer(await kiln.call("convert_units", given))


@app.get("/cron")
def explain(expression: str, after: str) -> Any:
    """Explain when a schedule of cron runs."""
    return answer(kiln.call_sync("explain_cron", {"expression": expression, "after": after}))


def answer(result: Result) -> Any:
    """What the tool gave, or why it gave nothing."""
    if result.error is not None:
        raise HTTPException(422 if result.status == "invalid" else 502, result.error.message)
    return result.value
