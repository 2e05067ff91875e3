"""Data files at the command line: what people see of them."""

import json

from .conftest import ADMITTED, Shell, states, write

RATES = '''from pathlib import Path

from toolkiln import tool


@tool(files=["data/*.json"])
def rate(currency: str) -> str:
    """Look up the exchange rate of a currency.

    Args:
        currency: Which one.
    """
    return (Path(__file__).parent / "data" / f"{currency}.json").read_text()
'''


def use_rates(desk: Shell) -> None:
    """Replace the tool by one that reads a data file."""
    (desk.folder / "tools" / "greet.py").unlink()
    write(desk, "rate.py", RATES)
    write(desk, "data/euro.json", '{"usd": 1.1}\n')


def test_check_names_the_data_files_and_what_is_not_declared(desk: Shell) -> None:
    use_rates(desk)
    write(desk, "data/euro.csv", "1")
    source = RATES.replace('"data" / f"{currency}.json"', '"data" / "euro.csv"')
    write(desk, "rate.py", source)

    [report] = desk.invoke("check", "tools", "--json").json()["files"]

    [finding] = report["findings"]
    assert report["data_files"] == ["data/euro.json"]
    assert (finding["rule"], finding["line"]) == ("undeclared-file", 13)


def test_a_change_of_data_waits_for_admission_and_can_be_rolled_back(desk: Shell) -> None:
    use_rates(desk)
    first = desk.invoke(*ADMITTED)
    called = desk.invoke("call", "rate", "currency=euro")
    write(desk, "data/euro.json", '{"usd": 1.2}\n')

    changed = states(desk)
    unchanged = desk.invoke("call", "rate", "currency=euro")
    shown = desk.run("admit", stdin=b"y\n")
    after = desk.invoke("call", "rate", "currency=euro")
    diff = desk.invoke("diff", "rate", "1", "2")
    back = desk.invoke("rollback", "rate", "1")
    again = desk.invoke("call", "rate", "currency=euro")

    assert first.code == 0, first.err
    assert called.out == unchanged.out == again.out
    assert json.loads(called.out) == {"usd": 1.1}
    assert changed == {"rate.py": "changed"}
    assert '+{"usd": 1.2}' in shown.out
    assert '+{"usd": 1.2}' in diff.out
    assert json.loads(after.out) == {"usd": 1.2}
    assert back.code == 0


def test_adding_a_file_without_its_data_says_what_is_missing(desk: Shell) -> None:
    use_rates(desk)
    (desk.folder / "elsewhere.py").write_text(RATES.replace("data/*", "other/*"))

    done = desk.invoke("add", "elsewhere.py")

    assert done.code == 1
    assert "missing-file" in done.err
    assert "other/*.json" in done.err
