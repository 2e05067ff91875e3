"""A decorated function that takes and returns pydantic models with exact decimals."""

from calendar import monthrange
from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from typing import Literal

from pydantic import BaseModel, Field

from toolkiln import tool

_CENT = Decimal("0.01")


class Loan(BaseModel):
    """What was borrowed, and on which terms."""

    principal: Decimal = Field(gt=0, description="The sum borrowed.")
    annual_rate: Decimal = Field(ge=0, le=100, description="Interest for a year, in percent.")
    months: int = Field(ge=1, le=600, description="How many monthly payments there are.")
    first_payment: date = Field(description="The day on which the first payment is due.")
    kind: Literal["annuity", "linear"] = Field(
        "annuity", description="Equal payments, or equal repayments with falling interest."
    )


class Payment(BaseModel):
    """One payment of the schedule."""

    due: date
    interest: Decimal
    repayment: Decimal
    balance: Decimal


class Schedule(BaseModel):
    """All payments of a loan, and what they add up to."""

    payments: list[Payment]
    total_interest: Decimal
    total_paid: Decimal


@tool(read_only=True, idempotent=True, parallel=True, icon="landmark", color="emerald")
def loan_schedule(loan: Loan) -> Schedule:
    """Work out the monthly payments of a loan: interest, repayment and balance of each.

    Args:
        loan: The loan and its terms.

    Returns:
        The payments in order, with totals. The last one makes up for rounding.

    Examples:
        >>> terms = Loan(principal=1000, annual_rate=12, months=3, first_payment="2026-01-31")
        >>> schedule = loan_schedule(terms)
        >>> schedule.total_interest
        Decimal('20.07')
        >>> [str(payment.due) for payment in schedule.payments]
        ['2026-01-31', '2026-02-28', '2026-03-31']
    """
    rate = loan.annual_rate / 1200
    level = _level_payment(loan.principal, rate, loan.months)
    balance = loan.principal
    payments: list[Payment] = []
    for month in range(loan.months):
        interest = _cents(balance * rate)
        even = _cents(loan.principal / loan.months)
        repayment = even if loan.kind == "linear" else level - interest
        if month == loan.months - 1:
            repayment = balance
        balance -= repayment
        payments.append(
            Payment(
                due=_months_later(loan.first_payment, month),
                interest=interest,
                repayment=repayment,
                balance=balance,
            )
        )
    total_interest = sum((payment.interest for payment in payments), Decimal(0))
    return Schedule(
        payments=payments,
        total_interest=total_interest,
        total_paid=loan.principal + total_interest,
    )


def _level_payment(principal: Decimal, rate: Decimal, months: int) -> Decimal:
    if not rate:
        return _cents(principal / months)
    return _cents(principal * rate / (1 - (1 + rate) ** -months))


def _cents(amount: Decimal) -> Decimal:
    return amount.quantize(_CENT, ROUND_HALF_UP)


def _months_later(day: date, months: int) -> date:
    """The same day of a later month, or the last day of a shorter one."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))
