"""Two tools that share a helper module and the enum in it."""

from datetime import date, timedelta
from typing import Annotated

from _holidays import Calendar, holidays
from pydantic import Field

from toolkiln import tool


@tool(read_only=True, idempotent=True, parallel=True, icon="calendar-plus")
def add_working_days(
    start: date,
    days: Annotated[int, Field(ge=-5000, le=5000)],
    calendar: Calendar = Calendar.NONE,
) -> date:
    """Find the date a number of working days after or before a given date.

    Saturdays, Sundays and the holidays of the calendar are skipped. The start itself is
    not counted.

    Parameters
    ----------
    start
        The date to count from.
    days
        How many working days to go; negative to go back.
    calendar
        Whose holidays are skipped as well.

    Returns
    -------
    date
        The working day reached.

    Examples
    --------
    >>> add_working_days(date(2026, 4, 2), 1, Calendar.TARGET)
    datetime.date(2026, 4, 7)
    >>> add_working_days(date(2026, 11, 16), -1)
    datetime.date(2026, 11, 13)
    """
    step = timedelta(1 if days > 0 else -1)
    day, left = start, abs(days)
    while left:
        day += step
        left -= _is_working_day(day, calendar)
    return day


@tool(read_only=True, idempotent=True, parallel=True, icon="calendar-range")
def count_working_days(start: date, end: date, calendar: Calendar = Calendar.NONE) -> int:
    """Count the working days between two dates, the first included, the last not.

    Parameters
    ----------
    start
        The first day that counts.
    end
        The day after the last that counts.
    calendar
        Whose holidays do not count.

    Returns
    -------
    int
        The number of days; 0 if the end is not after the start.

    Examples
    --------
    >>> count_working_days(date(2026, 12, 21), date(2027, 1, 4), Calendar.TARGET)
    8
    """
    days = (start + timedelta(at) for at in range((end - start).days))
    return sum(_is_working_day(day, calendar) for day in days)


def _is_working_day(day: date, calendar: Calendar) -> bool:
    return day.weekday() < 5 and day not in holidays(day.year, calendar)
