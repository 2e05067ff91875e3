"""Tools of an office: approvals, settings, secrets, a workspace and a toolkit."""

from pathlib import Path

from pydantic import BaseModel, Field, SecretStr

from toolkiln import Context, tool, tool_metadata


class Invoice(BaseModel):
    """An invoice."""

    number: str = Field(pattern=r"^\d{4}-\d+$", description="The number of the invoice.")
    amount: float = Field(gt=0, description="The amount in euros.")
    lines: list[str] = Field(default_factory=list, description="The lines of the invoice.")


class Values(BaseModel):
    """Settings of `pay`."""

    account: str = "main"
    pin: SecretStr = SecretStr("")


@tool(needs_approval=True, destructive=True, settings=Values)
def pay(invoice: Invoice, ctx: Context) -> dict[str, object]:
    """Pay an invoice.

    Args:
        invoice: The invoice to pay.
    """
    return {"number": invoice.number, "amount": invoice.amount, "account": ctx.settings["account"]}


@tool(workspace="write", requires_secrets=["NOTE_KEY"], network=["example.org"])
def note(text: str) -> int:
    """Add a line to the notes of the session.

    Args:
        text: The line.
    """
    with Path("/workspace/notes.txt").open("a") as file:
        return file.write(f"{text}\n")


@tool_metadata(visible=True)
class Shelf:
    """Things on a shelf."""

    def put_up(self, thing: str) -> str:
        """Put a thing on the shelf.

        Args:
            thing: The thing.
        """
        return thing

    def take_down(self, thing: str) -> str:
        """Take a thing from the shelf.

        Args:
            thing: The thing.
        """
        return thing
