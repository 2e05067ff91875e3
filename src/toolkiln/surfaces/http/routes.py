"""The table of routes under `/v1`, in the order of the description.

Those for administrators are in `admin_routes`.
"""

from urllib.parse import quote

from toolkiln.model.call import Result, Task
from toolkiln.operations import (
    approvals,
    calls,
    catalog,
    proposals,
    runs,
    search,
    sources,
    tool_files,
    tool_settings,
    tools,
    versions,
)
from toolkiln.surfaces.http import admin_routes, events
from toolkiln.surfaces.http.adapter import HandlerResponse, Route, route, tag

_ADMIN = "Requires the privilege ADMIN."
_APPROVE = "Requires the privilege APPROVE."
_SETTINGS_OF = "The operator's require ADMIN; `own=true` selects the caller's own."
_SOURCE = '''\
def double(number: int) -> int:
    """Double a number.

    Args:
        number: What is doubled.
    """
    return number * 2
'''


def _written(result: tool_files.WrittenTool) -> HandlerResponse:
    if result.proposed:
        return HandlerResponse(result, 202)
    location = f"/v1/tools/{quote(result.name, safe='')}"
    headers = {"etag": tag(result.digest), "location": location}
    return HandlerResponse(result, 201 if result.is_new else 200, headers)


_TOOLS = (
    route(
        "GET",
        "/v1/catalog",
        catalog.get_catalog,
        summary="Get the whole catalog",
        description=(
            "By weight, then name: the tools that the caller may run, and for callers with ADMIN "
            "also disabled ones and those that wait for an admission. Sent with gzip to clients "
            "that accept it."
        ),
        group="tools",
        is_large=True,
    ),
    route(
        "GET",
        "/v1/tools",
        tools.list_tools,
        summary="List the tools that the caller may run",
        description="By weight, then name. With `q` the tools that match best, best first.",
        group="tools",
    ),
    route(
        "GET",
        "/v1/tools/{name}",
        tools.get_tool,
        summary="Get a tool",
        group="tools",
        etag=lambda tool: str(tool.digest),
    ),
    route(
        "GET",
        "/v1/tools/{name}/presentation",
        tools.present_tool,
        summary="Get a tool as people and providers see it",
        group="tools",
    ),
    route(
        "PUT",
        "/v1/tools/{name}",
        tool_files.write_tool,
        name="put_tool",
        summary="Write a tool, or another version of it",
        description=(
            "The source is checked, imported and tried out in the sandbox. For a caller with "
            "WRITE_TOOLS the file is then written and admitted, both or neither, and can be "
            "called at once. For other callers, and with the setting `authoring = "
            '"propose"`, it becomes a proposal that a person has to admit: 202. '
            "`If-None-Match: *` replaces nothing."
        ),
        group="tools",
        responses=dict.fromkeys((201, 200, 202), tool_files.WrittenTool),
        respond=_written,
        problems=(409,),
        preconditions=("If-Match", "If-None-Match"),
        idempotent_by_key=True,
        examples={"double": {"source": _SOURCE}},
    ),
    route(
        "PATCH",
        "/v1/tools/{name}",
        tools.update_tool,
        name="patch_tool",
        summary="Enable or disable a tool, or grant what it requests",
        description=f"{_ADMIN} Core tools cannot be disabled.",
        group="tools",
        etag=lambda tool: str(tool.digest),
        problems=(409,),
        preconditions=("If-Match",),
        idempotent_by_key=True,
        examples={"off": {"enabled": False}},
    ),
    route(
        "DELETE",
        "/v1/tools/{name}",
        tools.delete_tool,
        summary="Remove a tool with its file",
        description=f"{_ADMIN} Its versions are kept: a rollback restores it.",
        group="tools",
        problems=(409,),
        preconditions=("If-Match",),
        idempotent_by_key=True,
    ),
    route(
        "PATCH",
        "/v1/toolkits/{name}",
        tools.update_toolkit,
        name="patch_toolkit",
        summary="Enable or disable a toolkit or some of its methods",
        description=f"{_ADMIN} A toolkit without an enabled method is disabled.",
        group="tools",
        problems=(409,),
        idempotent_by_key=True,
    ),
    route(
        "GET",
        "/v1/tools/{name}/versions",
        versions.page_versions,
        name="list_versions",
        summary="List the versions of a tool, newest first",
        group="tools",
    ),
    route(
        "GET",
        "/v1/tools/{name}/versions/{version}",
        versions.get_version,
        summary="Get a version with its source",
        description="Requires the privilege WRITE_TOOLS.",
        group="tools",
    ),
    route(
        "POST",
        "/v1/tools/{name}/rollback",
        versions.rollback,
        name="roll_back",
        summary="Serve an earlier version again",
        description=f"{_ADMIN} This also restores a removed tool.",
        group="tools",
        etag=lambda version: str(version.digest),
        problems=(409,),
        preconditions=("If-Match",),
        idempotent_by_key=True,
        examples={"first": {"version": 1}},
    ),
    route(
        "GET",
        "/v1/tools/{name}/settings",
        tool_settings.show_tool_settings,
        name="get_settings",
        summary="Get the settings of a tool, secrets masked",
        description=_SETTINGS_OF,
        group="tools",
    ),
    route(
        "PATCH",
        "/v1/tools/{name}/settings",
        tool_settings.set_tool_settings,
        name="patch_settings",
        summary="Set values that a tool gets with its calls",
        description=_SETTINGS_OF,
        group="tools",
        in_query=("own", "user"),
        idempotent_by_key=True,
        examples={"set": {"values": {"unit": "celsius"}, "unset": ["city"]}},
    ),
)

_CALLS = (
    Route(
        method="POST",
        path="/v1/tools/{name}/call",
        name="call_tool",
        summary="Call a tool",
        description=(
            "The response is 200 however the tool ends; see `status`. With `Accept: "
            "text/event-stream` the response is a stream of events that ends with the result. A "
            "call stops when its client goes away, unless it is in the background or has an "
            "`Idempotency-Key`, which becomes its id and finds its result for an hour."
        ),
        handle=events.call_tool,
        group="calls",
        body=calls.CallTool,
        responses={200: Result, 202: Task},
        events=events.CALL_EVENTS,
        idempotent_by_key="handled",
        examples={"double": {"arguments": {"number": 21}}},
    ),
    Route(
        method="POST",
        path="/v1/calls",
        name="call_many",
        summary="Make several calls",
        description=(
            "They run in order; adjacent calls of tools that declare to be parallel-safe run "
            "together. Each has a result, also if its tool is unknown. With an "
            "`Idempotency-Key` the calls have the ids KEY.0, KEY.1 and so on."
        ),
        handle=events.call_many,
        group="calls",
        body=calls.CallMany,
        responses={200: calls.BatchResults},
        idempotent_by_key="handled",
        examples={"two": {"calls": [{"tool": "double", "arguments": {"number": 1}}] * 2}},
    ),
    route(
        "GET",
        "/v1/calls",
        calls.list_calls,
        summary="List stored calls, newest first",
        description="Calls with an `Idempotency-Key` or in the background are kept for an hour.",
        group="calls",
    ),
    route(
        "GET",
        "/v1/calls/{id}",
        calls.get_call,
        summary="Get a call, or wait for its end",
        group="calls",
    ),
    route(
        "POST",
        "/v1/calls/{id}/cancel",
        calls.cancel_call,
        summary="Stop a call",
        description="A call that runs on another server stops within a second or two.",
        group="calls",
        idempotent_by_key=True,
    ),
    route(
        "GET",
        "/v1/calls/{id}/output",
        calls.get_call_output,
        summary="Get a page of a call's complete output",
        group="calls",
        problems=(409,),
    ),
    route(
        "GET",
        "/v1/outputs/{handle}",
        calls.get_output,
        summary="Get a page of a truncated output",
        description="The handle is `truncation.handle` of a result.",
        group="calls",
    ),
    Route(
        method="GET",
        path="/v1/calls/{id}/events",
        name="follow_call",
        summary="Follow a call: its events from now on, and its end",
        description="Always a stream. A call of another server has progress events only.",
        handle=events.follow_call,
        group="calls",
        responses={200: None},
        events=events.CALL_EVENTS,
    ),
    Route(
        method="GET",
        path="/v1/events",
        name="follow_catalog",
        summary="Follow changes of the tools that the caller may run, of runs and of approvals",
        description=(
            "Always a stream, which begins with `ready`. A `run` is sent when a call starts, "
            "has an event or ends, at most a few times a second."
        ),
        handle=events.follow_catalog,
        group="tools",
        query=events.FollowQuery,
        responses={200: None},
        events=events.CHANGE_EVENTS,
    ),
)

_RUNS = (
    route(
        "GET",
        "/v1/runs",
        runs.list_runs,
        summary="List current and past calls, newest first",
        description="The calls of the caller's user; with ADMIN all calls, and older ones.",
        group="runs",
    ),
    route(
        "GET",
        "/v1/runs/{id}",
        runs.get_run,
        summary="Get a call: arguments without secrets, events, result and audit record",
        group="runs",
    ),
    route(
        "POST",
        "/v1/runs/{id}/cancel",
        runs.cancel_run,
        summary="Stop a call that runs in this process",
        description=(
            "Its caller gets a result with the status `cancelled`. The calls that it made stop "
            "too. If the call does not end within seconds, the response has its current state."
        ),
        group="runs",
        problems=(409,),
        idempotent_by_key=True,
    ),
    route(
        "GET",
        "/v1/statistics",
        runs.get_statistics,
        summary="Get the number and duration of the last hour's calls, by the minute",
        description="Counts the ended calls that `/v1/runs` lists.",
        group="runs",
    ),
)

_SOURCES = (
    Route(
        method="POST",
        path="/v1/run",
        name="run_source",
        summary="Run a source once, without storing it",
        description=(
            "Requires the privilege WRITE_TOOLS, and ADMIN where agents may only propose tools. "
            "The source runs in the sandbox, by the rules, and is recorded like any call; it has "
            "no helper modules, no settings and no permissions. With an `Idempotency-Key` its "
            "result, and nothing else, is kept for an hour."
        ),
        handle=events.run_source,
        group="sources",
        body=sources.RunSource,
        responses={200: Result},
        events=events.CALL_EVENTS,
        idempotent_by_key="handled",
        examples={"double": {"source": _SOURCE, "arguments": {"number": 21}}},
    ),
    route(
        "POST",
        "/v1/schema",
        sources.report_source,
        name="read_source",
        summary="Read the schemas and findings of a source, without running it",
        description=(
            "Requires the privilege WRITE_TOOLS. The size of a source is limited; a finding "
            "names what was left out. Too many concurrent requests of a caller get 503."
        ),
        group="sources",
        is_large=True,
        examples={"double": {"source": _SOURCE}},
    ),
)

_SEARCH = (
    route(
        "GET",
        "/v1/search",
        search.search_tools,
        name="search",
        summary="Find tools for a task",
        group="search",
    ),
    route(
        "POST",
        "/v1/select",
        search.select_tools,
        name="select",
        summary="Select the tools for a model's context, in its provider's form",
        description=(
            "Core tools always, the others by relevance to the prompt. Pass the arguments that a "
            "model sends for one of them to the call, together with `provider`."
        ),
        group="search",
        examples={"ask": {"prompt": "double my money", "k": 3, "provider": "openai-strict"}},
    ),
    route(
        "GET",
        "/v1/docs/search",
        search.search_docs,
        summary="Search the documentation of tools",
        group="search",
    ),
)

_PROPOSALS = (
    route(
        "GET",
        "/v1/proposals",
        proposals.list_proposals,
        summary="List files that wait for an admission",
        description=_ADMIN,
        group="proposals",
    ),
    route(
        "POST",
        "/v1/proposals/admit",
        proposals.accept_proposal,
        name="admit_proposal",
        summary="Admit a file exactly as it was listed",
        description=(
            f"{_ADMIN} The file is checked, imported and tried out in the sandbox first. `file`, "
            "`digest` and `base` are those of the list: if the file or the served version has "
            "changed, nothing is decided: 412."
        ),
        group="proposals",
        omit=("name",),
        problems=(409, 412),
        idempotent_by_key=True,
    ),
    route(
        "POST",
        "/v1/proposals/reject",
        proposals.decline_proposal,
        name="reject_proposal",
        summary="Reject a file exactly as it was listed",
        description=f"{_ADMIN} An earlier version is still served.",
        group="proposals",
        omit=("name",),
        problems=(409, 412),
        idempotent_by_key=True,
    ),
)

_APPROVALS = (
    route(
        "GET",
        "/v1/approvals",
        approvals.list_approvals,
        summary="List calls that wait for approval, newest first",
        group="approvals",
    ),
    route(
        "GET",
        "/v1/approvals/{id}",
        approvals.get_approval,
        summary="Get a request for approval: the caller, the reason, the exact arguments",
        description="The first six characters of the id are enough.",
        group="approvals",
    ),
    route(
        "POST",
        "/v1/approvals/{id}/approve",
        approvals.approve,
        summary="Approve a call",
        description=(
            "Requires the privilege APPROVE. Callers approve their own calls only if a rule has "
            "`approve_own = true`; the local person may unless it has `false`."
        ),
        group="approvals",
        problems=(409,),
        idempotent_by_key=True,
        examples={"edited": {"arguments": {"amount": 10}, "reason": "not more than that"}},
    ),
    route(
        "POST",
        "/v1/approvals/{id}/reject",
        approvals.reject,
        summary="Reject a call",
        description=_APPROVE,
        group="approvals",
        problems=(409,),
        idempotent_by_key=True,
    ),
    route(
        "POST",
        "/v1/approvals/{id}/forget",
        approvals.forget_approval,
        summary="Forget a remembered approval, so that a person is asked again",
        description=_APPROVE,
        group="approvals",
        idempotent_by_key=True,
    ),
)

ROUTES: tuple[Route, ...] = (
    *_TOOLS,
    *_CALLS,
    *_RUNS,
    *_SOURCES,
    *_SEARCH,
    *_APPROVALS,
    *_PROPOSALS,
    *admin_routes.ROUTES,
)
