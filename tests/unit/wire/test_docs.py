"""The reference pages say what the code does."""

import json
import re
from pathlib import Path

import pytest

from passback.http.answers import STATUS
from passback.native.encoder import INCLUDABLE
from passback.native.shapes import NATIVE_EVENT

DOCS = Path(__file__).parents[3] / "docs" / "reference"
WIRE = (DOCS / "wire.md").read_text(encoding="utf-8")
HTTP = (DOCS / "http.md").read_text(encoding="utf-8")
EVENTS = (DOCS / "events.md").read_text(encoding="utf-8")
ERRORS = (DOCS / "error-codes.md").read_text(encoding="utf-8")


def _rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the tables of a section."""
    section = page.partition(f"# {heading}\n")[2]
    section = re.split(r"^#", section, maxsplit=1, flags=re.MULTILINE)[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in row] for row in rows]


def test_every_error_is_listed_with_its_status() -> None:
    listed = {row[0].strip("`"): int(row[1]) for row in _rows(ERRORS, "Codes")}
    unseen = {"client_error", "refused", "lease_lost", "configuration_error", "toolset_unavailable"}
    expected = {code: STATUS[code] for code in STATUS.keys() - unseen}
    assert listed == expected | {"method_not_allowed": 405}


def test_every_event_is_listed() -> None:
    schema = NATIVE_EVENT.json_schema()
    native = {row[0].strip("`"): row[1] for row in _rows(EVENTS, "Always sent")}
    added = _rows(EVENTS, "More events")
    assert {row[0].strip("`") for row in added} == INCLUDABLE
    more = {kind for row in added for kind in re.findall(r'"type": "([a-z-]+)"', row[1])}
    assert native.keys() | more == schema["discriminator"]["mapping"].keys()
    for kind, fields in native.items():
        name = schema["discriminator"]["mapping"][kind].rpartition("/")[2]
        assert set(re.findall(r"`(\w+)`", fields)) | {"type"} == set(
            schema["$defs"][name]["properties"]
        )


@pytest.mark.parametrize("block", re.findall(r"```json\n(.*?)```", WIRE + HTTP, re.DOTALL))
def test_every_example_is_json(block: str) -> None:
    assert json.loads(block)
