"""The whole API held against its description, by requests that nobody thought up.

Half of them are about things that are there. A stream that would not end is ended.
"""

from collections.abc import Mapping
from typing import Any

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.checks import CHECKS, load_all_checks

from toolkiln.surfaces.http.openapi import describe
from toolkiln.surfaces.http.routes import ROUTES

from .serving import Serving

load_all_checks()
SCHEMA = schemathesis.openapi.from_dict(describe(ROUTES, version="1.2.3", is_local=True))
REFUSED_THOUGH_IT_FITS: Any = CHECKS.get_one("positive_data_acceptance")
"""What fits its schema may still be no cursor, no tool, no Python."""
THERE: Mapping[str, tuple[str, ...]] = {
    "name": ("double", "long_text", "fail", "Shelf", "measure", "search_tools"),
    "version": ("1", "2"),
}


@SCHEMA.parametrize()
@settings(max_examples=6, suppress_health_check=list(HealthCheck))
def test_answers_are_as_described(case: Case[Any], api: Serving) -> None:
    if case.operation.path == "/v1/events" and lasts(case.query.get("seconds")):
        case.query["seconds"] = 0
    for part, names in THERE.items():
        if part in case.path_parameters:
            place = sum(map(ord, str(case.body) + str(case.query)))
            if place % 2:
                case.path_parameters[part] = names[place // 2 % len(names)]

    case.call_and_validate(base_url=api.url, excluded_checks=[REFUSED_THOUGH_IT_FITS])


def lasts(seconds: object) -> bool:
    """Whether a stream would go on for longer than a test should."""
    try:
        return seconds is None or 0 < float(str(seconds)) <= 86_400
    except ValueError:
        return False
