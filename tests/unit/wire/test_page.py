"""The playground that the server has, and the reference pages of its HTTP interface."""

import json
import posixpath
import re
from pathlib import Path

import pytest
from starlette.types import ASGIApp
from tests.support.agent_api import check_legal
from tests.support.asgi_client import ask
from tests.support.logged_runs import LoggedRuns

from passback.core.messages import OwnerId
from passback.core.signals import Signal
from passback.http.answers import STATUS
from passback.http.gate import Access
from passback.http.site import build_site
from passback.http.wires import Services, Wire
from passback.native.responses import INCLUDABLE
from passback.wire.page import build, build_page, read_page_files

pytestmark = pytest.mark.anyio


ROOT = Path(__file__).parents[3] / "client_tools"


def _app() -> ASGIApp:
    wire = build(Services(LoggedRuns(), Signal()))
    return build_site([wire], Access(keys={"a-key": OwnerId("alice")}))


KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
SERVED = {
    f"/{folder}/{file.name}": file.read_bytes()
    for folder in ("playground", "playground/vendor", "js/src")
    for file in (ROOT / folder).iterdir()
    if file.suffix in KINDS and file.name != "index.html"
}
INDEX = (ROOT / "playground" / "index.html").read_bytes()


@pytest.mark.parametrize(("path", "content"), SERVED.items(), ids=SERVED.keys())
async def test_each_file_is_served_as_it_is(path: str, content: bytes) -> None:
    answer = await ask(_app(), "GET", path)
    assert (answer.status, answer.body) == (200, content)
    assert answer.headers["content-type"] == KINDS[Path(path).suffix]


def test_the_imports_of_a_served_file_are_served_too() -> None:
    missing = {
        f"{path}: {name}"
        for path, content in SERVED.items()
        for name in re.findall(
            r'^(?:import|export) .*?from "([^"]+)";$', content.decode(), re.MULTILINE
        )
        if posixpath.normpath(posixpath.join(posixpath.dirname(path), name)) not in SERVED
    }
    # for applications that have these; the page does not load them
    assert missing == {"/js/src/react.js: react", "/js/src/vue.js: vue"}


async def test_the_page_is_at_the_root_and_needs_no_key() -> None:
    answer = await ask(_app(), "GET", "/", headers={"x-request-id": "r"})
    assert (answer.status, answer.body) == (200, INDEX)
    assert dict(answer.headers) == {
        "content-security-policy": (
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
            "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
        "x-content-type-options": "nosniff",
        "cross-origin-resource-policy": "same-origin",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cache-control": "no-cache",
        "x-request-id": "r",
        "content-type": "text/html; charset=utf-8",
        "content-length": str(len(answer.body)),
    }


@pytest.mark.parametrize(
    "path",
    [
        "/index.html/",
        "/../app.py",
        "/%2e%2e/app.py",
        "/..%2fapp.py",
        "//etc/passwd",
        "/%2fetc%2fpasswd",
        "/playground/main.js%00.html",
        "/playground/../js/package.json",
        "/js/package.json",
        "/playground/package.json",
        "/playground/vendor",
        "/playground/vendor/LICENSES.txt",
        "/playground/vendor/markdown-it.d.ts",
        "/js/src",
        "/tsconfig.json",
        "/.git/config",
    ],
)
async def test_no_path_leads_to_other_files(path: str) -> None:
    headers = {"authorization": "Bearer a-key"}
    assert (await ask(_app(), "GET", path, headers=headers)).status == 404


def test_only_files_of_known_kinds_are_served(tmp_path: Path) -> None:
    folder = tmp_path / "playground"
    folder.mkdir()
    for name in ("index.html", "a.js", "b.css", "c.svg", "secret.txt", "d.js.map", ".env"):
        (folder / name).write_text(name)
    (folder / "folder.js").mkdir()
    assert read_page_files((tmp_path / "missing", tmp_path)).keys() == {
        "/",
        "/playground/a.js",
        "/playground/b.css",
        "/playground/c.svg",
    }


def test_without_the_folder_there_is_no_page(tmp_path: Path) -> None:
    assert build_page((tmp_path,)) == Wire([])


# ---------------------------------------------------------------- the documents
DOCS = Path(__file__).parents[3] / "docs" / "reference"
WIRE = (DOCS / "wire.md").read_text(encoding="utf-8")
HTTP = (DOCS / "http.md").read_text(encoding="utf-8")
EVENTS = (DOCS / "events.md").read_text(encoding="utf-8")
ERRORS = (DOCS / "error-codes.md").read_text(encoding="utf-8")


def _rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the tables of a section."""
    section = page.partition(f"# {heading}\n")[2]
    section = re.split(r"^#", section, maxsplit=1, flags=re.MULTILINE)[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in row] for row in rows]


def test_every_error_is_listed_with_its_status() -> None:
    listed = {row[0].strip("`"): int(row[1]) for row in _rows(ERRORS, "Codes")}
    never_answered = {
        "client_error",
        "refused",
        "lease_lost",
        "configuration_error",
        "toolset_unavailable",
    }
    expected = {code: STATUS[code] for code in STATUS.keys() - never_answered}
    assert listed == expected | {"method_not_allowed": 405}


def test_every_include_is_listed() -> None:
    assert {row[0].strip("`") for row in _rows(EVENTS, "More events")} == INCLUDABLE


# ---------------------------------------------------------------- the page of the Agent API
PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "agent-api.md").read_text(
    encoding="utf-8"
)


def test_the_builders_examples_are_legal_responses(capsys: pytest.CaptureFixture[str]) -> None:
    contents_of_examples: list[list[str]] = []
    for example in re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        exec(example, {})
        events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        contents = check_legal(events)["output"][0]["content"]
        contents_of_examples.append([part.get("text", part["type"]) for part in contents])
    assert contents_of_examples == [["Look: ", "image"], ["Hello"]]


@pytest.mark.parametrize("block", re.findall(r"```json\n(.*?)```", WIRE + HTTP + PAGE, re.DOTALL))
def test_every_example_is_json(block: str) -> None:
    assert json.loads(block)
