"""Which distribution is suggested for an import that the file does not list."""

import re

from reading import findings

from tables import each_row
from toolkiln.catalog.reports import repairs_for, report
from toolkiln.spec.reader import read
from toolkiln.spec.requirements import distribution_of

ADVICE = "put your own module next to the file, or list the distribution that provides it"


def fix(statement: str) -> str:
    [finding] = findings(f"{statement}\ndef f(): ...", "unlisted-import")
    return finding.fix


@each_row(
    "statement, distribution",
    [
        ("import bs4", "beautifulsoup4"),
        ("from PIL import Image", "pillow"),
        ("import yaml as y", "pyyaml"),
        ("from sklearn.linear_model import Ridge", "scikit-learn"),
        ("import cv2", "opencv-python"),
        ("import dateutil.parser", "python-dateutil"),
        ("from dotenv import load_dotenv", "python-dotenv"),
        ("import jwt", "pyjwt"),
        ("import numpy as np", "numpy"),
        ("from google.cloud import storage", "google-cloud-storage"),
        ("import google.cloud.bigquery", "google-cloud-bigquery"),
        ("from google.protobuf.message import Message", "protobuf"),
    ],
)
def test_the_distribution_of_a_well_known_import_is_suggested(
    statement: str, distribution: str
) -> None:
    assert f'["{distribution}"]' in fix(statement)


@each_row(
    "statement",
    ["import reqeusts", "import my_company", "from internal.tools import x", "import google",
     "from google.cloud import unheard_of", "import numpyy"],
)  # fmt: skip
def test_no_distribution_is_suggested_for_an_unknown_import(statement: str) -> None:
    assert fix(statement) == ADVICE


def test_an_unknown_import_gets_no_repair_that_would_install_it() -> None:
    source = 'import reqeusts\n\ndef one() -> int:\n    """Give the number one."""\n    return 1\n'

    found = report(read(source, "x.py"), {})

    rules = [finding.rule for finding in found.reading.findings]
    assert "unlisted-import" in rules
    assert set(repairs_for(source, found)) == {None}


@each_row("listed", ["python-dateutil", "Python_DateUtil>=2", "python.dateutil"])
def test_a_listed_distribution_covers_the_import_however_it_is_spelt(listed: str) -> None:
    source = f"# requirements: {listed}\nimport dateutil\ndef f(): ..."

    assert not findings(source, "unlisted-import")


def test_every_suggestion_is_a_valid_distribution_name() -> None:
    from toolkiln.spec import requirements

    known = [*requirements._SAME_NAME, *requirements._OTHER_NAMES]

    assert len(known) >= 60
    for name in known:
        assert re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)*", str(distribution_of(name))), name
