"""A decorated function that takes a date and time and returns a dataclass."""

from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Annotated

from pydantic import Field

from toolkiln import ToolError, tool

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_FIELDS: tuple[tuple[str, int, int, list[str]], ...] = (
    ("minute", 0, 59, []),
    ("hour", 0, 23, []),
    ("day of the month", 1, 31, []),
    ("month", 1, 12, _MONTHS),
    ("weekday", 0, 7, _WEEKDAYS),
)
# 29 February can be eight years away, as from 2096 to 2104.
_HORIZON = 366 * 8


@dataclass
class CronSchedule:
    """What a cron expression means."""

    explanation: str
    next_runs: list[datetime]


@tool(read_only=True, idempotent=True, parallel=True, icon="clock")
def explain_cron(
    expression: Annotated[str, Field(min_length=9, max_length=200)],
    after: datetime,
    count: Annotated[int, Field(ge=1, le=50)] = 5,
) -> CronSchedule:
    """Explain a cron expression in words and list when it runs next.

    Args:
        expression: Minute, hour, day of the month, month and weekday, such as `0 9 * * 1-5`.
        after: The moment after which runs are listed, in the time zone that cron uses.
        count: How many runs to list.

    Returns:
        The explanation, and the runs in order.

    Raises:
        ToolError: The expression is not one that cron understands.

    Examples:
        >>> schedule = explain_cron("30 9 * * mon-fri", datetime(2026, 11, 13, 10), count=2)
        >>> schedule.explanation
        'minute 30; hour 9; every day of the month; every month; weekday mon, tue, wed, thu, fri'
        >>> [str(run) for run in schedule.next_runs]
        ['2026-11-16 09:30:00', '2026-11-17 09:30:00']

    **When to use**
        Before a crontab line is written, to see that it means what was asked for.
    """
    parts = expression.split()
    if len(parts) != 5:
        raise ToolError(f"a cron expression has 5 fields, this one {len(parts)}")
    sets = [_values(part, *field) for part, field in zip(parts, _FIELDS, strict=True)]
    sets[4] = {day % 7 for day in sets[4]}
    words = [_words(values, *field) for values, field in zip(sets, _FIELDS, strict=True)]
    return CronSchedule("; ".join(words), _runs(parts, sets, after, count))


def _values(part: str, name: str, low: int, high: int, names: list[str]) -> set[int]:
    found: set[int] = set()
    for item in part.lower().split(","):
        span, _, step = item.partition("/")
        first, dash, last = span.partition("-")
        try:
            start = low if span == "*" else _number(first, names, low)
            open_end = span == "*" or (step and not dash)
            end = high if open_end else _number(last or first, names, low)
            stride = int(step) if step else 1
        except ValueError:
            raise ToolError(f"the {name} {item!r} cannot be understood") from None
        if not low <= start <= end <= high or stride < 1:
            raise ToolError(f"the {name} {item!r} is not within {low} to {high}")
        found.update(range(start, end + 1, stride))
    return found


def _number(text: str, names: list[str], low: int) -> int:
    return names.index(text) + low if text in names else int(text)


def _words(values: set[int], name: str, low: int, high: int, names: list[str]) -> str:
    if len(values) == len(names or range(low, high + 1)):
        return f"every {name}"
    shown = [names[value - low] if names else str(value) for value in sorted(values)]
    return f"{name} {', '.join(shown)}"


def _runs(parts: list[str], sets: list[set[int]], after: datetime, count: int) -> list[datetime]:
    minutes, hours, days, months, weekdays = sets
    times = [time(hour, minute) for hour in sorted(hours) for minute in sorted(minutes)]
    runs: list[datetime] = []
    for offset in range(_HORIZON):
        day = after.date() + timedelta(offset)
        by_day, by_weekday = day.day in days, (day.weekday() + 1) % 7 in weekdays
        # Cron runs on either where both are restricted, else on both.
        both = parts[2].startswith("*") or parts[4].startswith("*")
        due = (by_day and by_weekday) if both else (by_day or by_weekday)
        if day.month not in months or not due:
            continue
        for at in times:
            run = datetime.combine(day, at, after.tzinfo)
            if run > after:
                runs.append(run)
            if len(runs) == count:
                return runs
    return runs
