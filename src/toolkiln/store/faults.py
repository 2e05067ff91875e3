"""What SQLAlchemy raises, as the one error that leaves this package.

Messages carry the database's own first line and a hint; never a URL, a password or SQL.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc

from toolkiln.store.errors import StoreError, driver_failed

__all__ = ["StoreError", "as_store_error"]


@contextmanager
def as_store_error(database: str, secrets: tuple[str, ...] = ()) -> Iterator[None]:
    """Turns whatever the database raises into a StoreError that names `database`."""
    what = f"the store {database}"
    try:
        yield
    except exc.DBAPIError as error:
        # Not chained: the foreign error carries SQL, values and perhaps the URL.
        raise driver_failed(what, error.orig or error, secrets) from None
    except exc.TimeoutError:
        raise StoreError(
            f"{what} is overloaded: no connection became free in time",
            hint="make fewer calls at once",
        ) from None
    except UnicodeError:
        raise StoreError(
            f"{what} failed: its name or something in it is not valid text",
            hint="check its name; if it is damaged, move it away",
        ) from None
    except exc.SQLAlchemyError as error:
        text = f"{what} failed: {type(error).__name__}"
        raise StoreError(text, hint="please report this") from None
