"""Bank holidays, shared by the tools beside this file.

The leading underscore says that it holds no tools. Its bytes are part of the version of
every tool that imports it.
"""

from datetime import date, timedelta
from enum import StrEnum


class Calendar(StrEnum):
    """Whose holidays count."""

    NONE = "none"
    TARGET = "target"
    """The closing days of the euro area's payment system."""
    US_FEDERAL = "us_federal"


def holidays(year: int, calendar: Calendar) -> set[date]:
    """Return the public holidays of a year."""
    if calendar is Calendar.TARGET:
        easter = _easter(year)
        moving = {easter - timedelta(2), easter + timedelta(1)}
        return moving | {date(year, m, d) for m, d in ((1, 1), (5, 1), (12, 25), (12, 26))}
    if calendar is Calendar.US_FEDERAL:
        fixed = {date(year, m, d) for m, d in ((1, 1), (6, 19), (7, 4), (11, 11), (12, 25))}
        fixed.add(date(year + 1, 1, 1))  # kept on 31 December where it falls on a Saturday
        moving = {_nth_weekday(year, *rule) for rule in _US_MOVING}
        last_monday_of_may = _nth_weekday(year, 6, 0, 1) - timedelta(7)
        return {_observed(day) for day in fixed} | moving | {last_monday_of_may}
    return set()


# Month, weekday (Monday is 0) and which one: King, Presidents, Labor, Columbus, Thanksgiving.
_US_MOVING = ((1, 0, 3), (2, 0, 3), (9, 0, 1), (10, 0, 2), (11, 3, 4))


def _observed(day: date) -> date:
    """The working day on which a holiday at a weekend is kept."""
    shift = {5: -1, 6: 1}.get(day.weekday(), 0)
    return day + timedelta(shift)


def _nth_weekday(year: int, month: int, weekday: int, nth: int) -> date:
    first = date(year, month, 1)
    return first + timedelta((weekday - first.weekday()) % 7 + 7 * (nth - 1))


def _easter(year: int) -> date:
    """Easter Sunday by the anonymous Gregorian computus."""
    a, b, c = year % 19, year // 100, year % 100
    d = (19 * a + b - b // 4 - (b - (b + 8) // 25 + 1) // 3 + 15) % 30
    e = (32 + 2 * (b % 4) + 2 * (c // 4) - d - c % 4) % 7
    f = d + e - 7 * ((a + 11 * d + 22 * e) // 451) + 114
    return date(year, f // 31, f % 31 + 1)
