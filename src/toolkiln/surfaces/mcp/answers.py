"""Results of calls as clients read them: content blocks, structured content, errors.

A tool that declares what it returns has to return that, or its client refuses the answer;
so whatever cannot have the promised form (a failure, an output that was cut, a call that
continues) is an error, in words. Text is text in `content` and wrapped in `structuredContent`;
other values are the same JSON in both.
"""

import json
from base64 import b64encode
from collections.abc import Callable
from mimetypes import guess_type
from typing import Any
from urllib.parse import quote

from toolkiln.model import Result, SentFile, Status, Task, Truncation
from toolkiln.surfaces.mcp.cards import DEV

Structured = Callable[[Any], dict[str, Any] | None]
"""What puts a value into the form that the tool promises; None if it does not fit."""


def answer(result: Result, structured: Structured | None, *, promises: bool) -> dict[str, Any]:
    """A `CallToolResult`; with `promises` the tool has an output schema."""
    content: list[dict[str, Any]] = []
    found: dict[str, Any] = {"content": content}
    if result.status is not Status.OK or structured is None:
        content += _said(result.text)
        found["isError"] = result.status is not Status.OK or promises
    else:
        form = None if result.truncation else structured(result.value)
        if form is not None:
            content += _said(result.value if isinstance(result.value, str) else _json(form))
            found["structuredContent"] = form
        elif promises and result.truncation and (cut := structured(result.text)) is not None:
            # Text that was cut is still text, and says itself that it was.
            content += _said(result.text)
            found["structuredContent"] = cut
        else:
            content += _said(result.text)
            if promises:
                content.append(_text(_misfit(result)))
                found["isError"] = True
    content += _beside(result)
    meta: dict[str, Any] = {"toolkiln/notes": list(result.notes)} if result.notes else {}
    if result.error is not None:
        meta["toolkiln/code"] = result.error.code
    if result.dev:
        meta[DEV] = True
    return found | ({"_meta": meta} if meta else {})


def going_on(task: Task, *, promises: bool) -> dict[str, Any]:
    """Return the answer for a call that continues as a background task."""
    why = (
        "waits for a person's approval"
        if task.state == "pending"
        else "takes longer than this server lets clients wait, and continues in the background"
    )
    text = (
        f"This call of {task.tool} {why}. Its task id is {task.id}. "
        f"Call await_task to wait for its result, check_task to see its state, "
        f"cancel_task to stop it."
    )
    found: dict[str, Any] = {"content": [_text(text)], "_meta": {"toolkiln/task": task.id}}
    return found | ({"isError": True} if promises else {})


def _said(text: str) -> list[dict[str, Any]]:
    """Return a text block, or none for no text: some models' providers refuse empty blocks."""
    return [_text(text)] if text else []


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _misfit(result: Result) -> str:
    if result.truncation:
        return "The result was cut, so that it has not the form that this tool promises."
    return "The tool ran, but its result has not the form that it promises; this is what it gave."


def _beside(result: Result) -> list[dict[str, Any]]:
    """What a call gave beside its value."""
    found = []
    if result.truncation:
        found.append(_text(_reading_on(result.truncation)))
    found += [file_block(result.call_id, file) for file in result.files]
    for message in result.messages:
        said = message if isinstance(message, str) else _json(message)
        found.append({**_text(said), "annotations": {"audience": ["user"]}})
    if result.injected_tools:
        names = ", ".join(result.injected_tools)
        found.append(_text(f"These tools are offered for what follows: {names}."))
    return found


def _reading_on(cut: Truncation) -> str:
    told = f"{cut.total - cut.shown:,} of {cut.total:,} characters were left out."
    if cut.handle is None:
        return f"{told} They could not be kept."
    return f'{told} read_output with handle "{cut.handle}" and an offset reads them.'


def file_block(call_id: str, file: SentFile) -> dict[str, Any]:
    """A file that a call handed over, as what it is."""
    guessed = guess_type(file.name)[0] or "application/octet-stream"
    kind = "audio/wav" if guessed == "audio/x-wav" else guessed
    family = kind.partition("/")[0]
    if family in ("image", "audio") and kind != "image/svg+xml":
        return {"type": family, "data": b64encode(file.data).decode(), "mimeType": kind}
    uri = f"toolkiln://calls/{quote(call_id, safe='')}/files/{quote(file.name, safe='')}"
    resource: dict[str, Any] = {"uri": uri, "mimeType": kind}
    try:
        if b"\0" in file.data:
            raise ValueError
        resource["text"] = file.data.decode()
    except ValueError:
        resource["blob"] = b64encode(file.data).decode()
    return {"type": "resource", "resource": resource}
