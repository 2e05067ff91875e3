"""The table of routes under `/v1`, in the order of the description."""

from dataclasses import replace
from urllib.parse import quote

from toolkiln.model.call import Result, Task
from toolkiln.operations import (
    approvals,
    audit,
    calls,
    catalog,
    identities,
    library,
    policy,
    proposals,
    runs,
    secrets,
    sources,
    system,
    tool_files,
    toolkits,
    tools,
    versions,
)
from toolkiln.surfaces.http import events
from toolkiln.surfaces.http.adapter import Route, route, tag
from toolkiln.surfaces.http.responses import JsonResponse

_ADMIN = "Requires the privilege ADMIN."
_APPROVE = "Requires the privilege APPROVE."
_SECRET = {"cache-control": "no-store"}
_SETTINGS_OF = "The operator's require ADMIN; `own=true` selects the caller's own."
_SOURCE = '''\
def double(number: int) -> int:
    """Double a number.

    Args:
        number: What is doubled.
    """
    return number * 2
'''


def _written(result: tool_files.WrittenTool) -> JsonResponse:
    if result.proposed:
        return JsonResponse(result, 202)
    location = f"/v1/tools/{quote(result.name, safe='')}"
    headers = {"etag": tag(result.digest), "location": location}
    return JsonResponse(result, 201 if result.is_new else 200, headers)


def _group(tag: str, *routes: Route) -> tuple[Route, ...]:
    return tuple(replace(route, group=route.group or tag) for route in routes)


_TOOLS = _group(
    "tools",
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
        is_large=True,
    ),
    route(
        "GET",
        "/v1/tools",
        tools.list_tools,
        summary="List the tools that the caller may run",
        description="By weight, then name. With `q` the tools that match best, best first.",
    ),
    route(
        "GET",
        "/v1/tools/{name}",
        tools.get_tool,
        summary="Get a tool",
        etag=lambda tool: str(tool.digest),
    ),
    route(
        "GET",
        "/v1/tools/{name}/presentation",
        tools.present_tool,
        summary="Get a tool as people and providers see it",
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
        responses=dict.fromkeys((201, 200, 202), tool_files.WrittenTool),
        respond=_written,
        preconditions=("If-Match", "If-None-Match"),
        examples={"double": {"source": _SOURCE}},
    ),
    route(
        "PATCH",
        "/v1/tools/{name}",
        tools.update_tool,
        name="patch_tool",
        summary="Enable or disable a tool, or grant what it requests",
        description=f"{_ADMIN} Core tools cannot be disabled.",
        etag=lambda tool: str(tool.digest),
        preconditions=("If-Match",),
        examples={"off": {"enabled": False}},
    ),
    route(
        "DELETE",
        "/v1/tools/{name}",
        tools.delete_tool,
        summary="Remove a tool with its file",
        description=f"{_ADMIN} Its versions are kept: a rollback restores it.",
        preconditions=("If-Match",),
    ),
    route(
        "GET",
        "/v1/toolkits/{name}",
        toolkits.get_toolkit,
        summary="Get a toolkit with its methods",
        description="In the order of their declaration. Disabled methods require ADMIN.",
    ),
    route(
        "PATCH",
        "/v1/toolkits/{name}",
        toolkits.update_toolkit,
        name="patch_toolkit",
        summary="Enable or disable a toolkit or some of its methods",
        description=f"{_ADMIN} A toolkit without an enabled method is disabled.",
    ),
    route(
        "GET",
        "/v1/tools/{name}/versions",
        versions.page_versions,
        name="list_versions",
        summary="List the versions of a tool, newest first",
    ),
    route(
        "GET",
        "/v1/tools/{name}/versions/{version}",
        versions.get_version,
        summary="Get a version with its source",
    ),
    route(
        "POST",
        "/v1/tools/{name}/rollback",
        versions.rollback,
        name="roll_back",
        summary="Serve an earlier version again",
        description=f"{_ADMIN} This also restores a removed tool.",
        etag=lambda version: str(version.digest),
        preconditions=("If-Match",),
        examples={"first": {"version": 1}},
    ),
    route(
        "GET",
        "/v1/tools/{name}/settings",
        secrets.show_tool_settings,
        name="get_settings",
        summary="Get the settings of a tool, secrets masked",
        description=_SETTINGS_OF,
    ),
    route(
        "PATCH",
        "/v1/tools/{name}/settings",
        secrets.set_tool_settings,
        name="patch_settings",
        summary="Set values that a tool gets with its calls",
        description=_SETTINGS_OF,
        in_query=("own", "user"),
        examples={"set": {"values": {"unit": "celsius"}, "unset": ["city"]}},
    ),
)

_CALLS = _group(
    "calls",
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
    ),
    route("GET", "/v1/calls/{id}", calls.get_call, summary="Get a call, or wait for its end"),
    route(
        "POST",
        "/v1/calls/{id}/cancel",
        calls.cancel_call,
        summary="Stop a call",
        description="A call that runs on another server stops within a second or two.",
    ),
    route(
        "GET",
        "/v1/calls/{id}/output",
        calls.get_call_output,
        summary="Get a page of a call's complete output",
        problems=(409,),
    ),
    route(
        "GET",
        "/v1/outputs/{handle}",
        calls.get_output,
        summary="Get a page of a truncated output",
        description="The handle is `truncation.handle` of a result.",
    ),
    Route(
        method="GET",
        path="/v1/calls/{id}/events",
        name="follow_call",
        summary="Follow a call: its events from now on, and its end",
        description=(
            "Always a stream. With the header `Last-Event-ID` it begins with the events after "
            "that one; 0 for all. A call of another server has progress events only."
        ),
        handle=events.follow_call,
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

_RUNS = _group(
    "runs",
    route(
        "GET",
        "/v1/runs",
        runs.list_runs,
        summary="List current and past calls, newest first",
        description="The calls of the caller's user; with ADMIN all calls, and older ones.",
    ),
    route(
        "GET",
        "/v1/runs/{id}",
        runs.get_run,
        summary="Get a call: arguments without secrets, events, result and audit record",
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
    ),
    route(
        "GET",
        "/v1/statistics",
        runs.get_statistics,
        summary="Get the number and duration of the last hour's calls, by the minute",
        description="Counts the ended calls that `/v1/runs` lists.",
    ),
)

_SOURCES = _group(
    "sources",
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
        is_large=True,
        examples={"double": {"source": _SOURCE}},
    ),
)

_SEARCH = _group(
    "search",
    route(
        "GET", "/v1/search", library.search_tools, name="search", summary="Find tools for a task"
    ),
    route(
        "POST",
        "/v1/select",
        library.select_tools,
        name="select",
        summary="Select the tools for a model's context, in its provider's form",
        description=(
            "Core tools always, the others by relevance to the prompt. Pass the arguments that a "
            "model sends for one of them to the call, together with `provider`."
        ),
        examples={"ask": {"prompt": "double my money", "k": 3, "provider": "openai-strict"}},
    ),
    route(
        "GET", "/v1/docs/search", library.search_docs, summary="Search the documentation of tools"
    ),
)

_PROPOSALS = _group(
    "proposals",
    route(
        "GET",
        "/v1/proposals",
        proposals.list_proposals,
        summary="List files that wait for an admission",
        description=_ADMIN,
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
        omit=("name",),
        problems=(412,),
    ),
    route(
        "POST",
        "/v1/proposals/reject",
        proposals.decline_proposal,
        name="reject_proposal",
        summary="Reject a file exactly as it was listed",
        description=f"{_ADMIN} An earlier version is still served.",
        omit=("name",),
        problems=(412,),
    ),
)

_APPROVALS = _group(
    "approvals",
    route(
        "GET",
        "/v1/approvals",
        approvals.list_approvals,
        summary="List calls that wait for approval, newest first",
    ),
    route(
        "GET",
        "/v1/approvals/{id}",
        approvals.get_approval,
        summary="Get a request for approval: the caller, the reason, the exact arguments",
        description="The first six characters of the id are enough.",
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
        examples={"edited": {"arguments": {"amount": 10}, "reason": "not more than that"}},
    ),
    route(
        "POST",
        "/v1/approvals/{id}/reject",
        approvals.reject,
        summary="Reject a call",
        description=_APPROVE,
    ),
    route(
        "POST",
        "/v1/approvals/{id}/forget",
        approvals.forget_approval,
        summary="Forget a remembered approval, so that a person is asked again",
    ),
)

_AUDIT = _group(
    "audit",
    route(
        "GET",
        "/v1/audit",
        audit.list_records,
        summary="List records of the audit log, newest first",
    ),
    route(
        "GET",
        "/v1/audit/verify",
        audit.verify_audit,
        summary="Check whether records were edited, removed or reordered",
        description=f"{_ADMIN} It takes time: it reads the whole log.",
    ),
)

_IDENTITIES = _group(
    "identities",
    route(
        "POST",
        "/v1/sessions",
        identities.create_session,
        summary="Create a session for a user",
        description=(
            "Requires the privilege ADMIN: the caller vouches for the user's identity. Callers "
            "can grant only privileges that they have themselves."
        ),
        status=201,
        headers=_SECRET,
        examples={"ann": {"user_id": "ann", "groups": ["staff"], "seconds": 600}},
    ),
    route(
        "GET", "/v1/sessions", identities.list_sessions, summary="List valid sessions, newest first"
    ),
    route(
        "GET",
        "/v1/sessions/own",
        identities.get_own_session,
        summary="Get the session of this request, with its privileges",
    ),
    route(
        "POST",
        "/v1/sessions/end",
        identities.end_session,
        summary="End a session, including for running calls",
        description="Its token is enough.",
    ),
    route(
        "DELETE",
        "/v1/sessions/{session}",
        identities.revoke_session,
        name="end_named_session",
        summary="End a session by its trace_id, including for running calls",
    ),
    route("POST", "/v1/sessions/renew", identities.renew_session, summary="Extend a valid session"),
    route(
        "POST",
        "/v1/keys",
        identities.create_key,
        summary="Create an API key",
        status=201,
        headers=_SECRET,
        examples={"ci": {"name": "ci", "user_id": "ci", "tools": ["check_*"], "days": 30}},
    ),
    route("GET", "/v1/keys", identities.list_keys, summary="List API keys, without their secrets"),
    route(
        "DELETE",
        "/v1/keys/{key}",
        identities.revoke_key,
        summary="Revoke an API key by its id or name, and end its sessions",
    ),
)

_SYSTEM = _group(
    "system",
    route(
        "GET",
        "/v1/rules",
        policy.list_rules,
        summary="List the operator's rules in their order, and the privileges of users",
    ),
    route(
        "GET",
        "/v1/rules/explain",
        policy.explain_rules,
        summary="Explain whether a user may run a tool, by which rule, and what else is needed",
    ),
    route(
        "GET",
        "/v1/doctor",
        system.diagnose,
        summary="Try every sandbox mode on the server's machine",
        description=f"{_ADMIN} It takes a few seconds.",
    ),
    route(
        "GET",
        "/v1/environments",
        system.list_environments,
        summary="List the packages installed for tools, last used first",
    ),
    route(
        "POST",
        "/v1/environments/prune",
        system.prune_environments,
        summary="Remove unused environments and return them",
        description=f"{_ADMIN} They are rebuilt when a tool needs them.",
        examples={"month": {"days": 30}},
    ),
    route(
        "GET",
        "/v1/fleet",
        system.show_fleet,
        summary="Get the status of the fleet: its pools and workers",
    ),
    route(
        "GET",
        "/v1/settings",
        system.list_settings,
        summary="List the current settings and their origins",
        description=f"{_ADMIN} Passwords are hidden.",
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
    *_AUDIT,
    *_IDENTITIES,
    *_SYSTEM,
)
