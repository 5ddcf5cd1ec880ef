"""The npm package as it is published: packed, judged by publint, installed into a fresh Vite app."""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from playwright.async_api import Browser, expect
from tests.support.programs import missing, program

pytestmark = [pytest.mark.anyio, pytest.mark.node, pytest.mark.timeout(240)]

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests" / "js"
ADDRESS = "https://code.example.com/owner/passback"
SECONDS = 200
MAX_GZIP_BYTES = 14_000


def node(*command: str | Path, cwd: Path) -> str:
    """The output of a Node.js program."""
    path = program("node", variable="TEST_NODE")
    return run([path, *command], cwd)


def run(command: Sequence[str | Path], cwd: Path) -> str:
    environment = os.environ | {"NO_COLOR": "1"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=SECONDS,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def module(path: str) -> Path:
    """A file of the npm packages of the tests."""
    found = TESTS / "node_modules" / path
    return found if found.exists() else missing(f"{path} in tests/js/node_modules")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that is published."""
    folder = tmp_path_factory.mktemp("packed")
    script = ROOT / "scripts" / "pack_js.py"
    environment = {"TEST_NODE": program("node", variable="TEST_NODE")}
    command = ["env", *(f"{name}={value}" for name, value in environment.items())]
    output = run([*command, sys.executable, script, ADDRESS, folder], ROOT)
    return Path(output.splitlines()[-1])


@pytest.fixture(scope="module")
def app(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Vite app with the package unpacked, as by `npm install`, and what else it needs."""
    vite = module("vite")
    folder = tmp_path_factory.mktemp("app")
    shutil.copytree(TESTS / "vite-app", folder, dirs_exist_ok=True)
    modules = folder / "node_modules"
    modules.mkdir()
    for other in vite.parent.iterdir():
        if not other.name.startswith(".vite"):
            (modules / other.name).symlink_to(other)
    shutil.unpack_archive(packed, folder, "gztar", filter="data")
    (folder / "package").rename(modules / "passback")
    return folder


@pytest.fixture(scope="module")
def installed(app: Path) -> Path:
    return app / "node_modules" / "passback"


def test_publint_has_no_objection(packed: Path) -> None:
    output = node(module("publint/src/cli.js"), packed, "--strict", cwd=packed.parent)
    assert "All good!" in output


def test_it_says_where_it_comes_from(installed: Path) -> None:
    manifest = json.loads((installed / "package.json").read_text())
    assert manifest["repository"] == {
        "type": "git",
        "url": f"git+{ADDRESS}.git",
        "directory": "client_tools/js",
    }
    assert manifest["homepage"].startswith(f"{ADDRESS}/tree/HEAD/client_tools/js")
    assert manifest["bugs"] == {"url": f"{ADDRESS}/issues"}
    assert (installed / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_its_readme_has_absolute_links(installed: Path) -> None:
    links = re.findall(r"\]\(([^)]*)\)", (installed / "README.md").read_text())
    assert all(link.startswith(("#", "https://")) for link in links)
    prefix = f"{ADDRESS}/blob/HEAD/"
    files = [link for link in links if link.startswith(prefix)]
    assert len(files) > 10
    for link in files:
        assert (ROOT / link.removeprefix(prefix).partition("#")[0]).is_file(), link


def test_each_entry_has_its_types(installed: Path) -> None:
    manifest = json.loads((installed / "package.json").read_text())
    exports: dict[str, str | dict[str, str]] = manifest["exports"]
    entries = [each for each in exports.values() if not isinstance(each, str)]
    assert len(entries) >= 2
    for entry in entries:
        assert next(iter(entry)) == "types"  # the first that fits is taken
        assert all((installed / path).is_file() for path in entry.values())


def bundle(app: Path, source: str) -> tuple[int, set[str]]:
    """The gzipped size of a minified bundle in bytes, and the modules of ours in it."""
    (app / "entry.js").write_text(source)
    flags = ["--bundle", "--minify", "--format=esm", "--metafile=meta.json", "--outfile=out.js"]
    node(module("esbuild/bin/esbuild"), "entry.js", *flags, "--log-level=error", cwd=app)
    meta: dict[str, Any] = json.loads((app / "meta.json").read_text())
    inputs = meta["outputs"]["out.js"]["inputs"]
    used = {Path(name).name for name, each in inputs.items() if each["bytesInOutput"] > 0}
    return len(gzip.compress((app / "out.js").read_bytes(), 9, mtime=0)), used


def test_the_client_alone_is_small(app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size, used = bundle(app, 'import { Client } from "passback"; globalThis.client = new Client();')
    whole, _ = bundle(app, 'import * as all from "passback"; globalThis.all = all;')
    with capsys.disabled():  # the figure is in the log of each run
        sys.stdout.write(f"\nthe client alone: {size} bytes (gzip), the whole package: {whole}\n")
    assert size <= MAX_GZIP_BYTES
    assert size < whole
    assert "client.js" in used
    assert not used & {"chat.js", "thread.js", "live.js", "answer.js", "calls.js", "visible.js"}


@pytest.mark.browser
async def test_a_vite_app_is_checked_and_built_and_runs_a_typed_tool(
    app: Path, browser: Browser, server_url: str
) -> None:
    await anyio.to_thread.run_sync(lambda: node(module("typescript/bin/tsc"), cwd=app))
    await anyio.to_thread.run_sync(lambda: node(module("vite/bin/vite.js"), "build", cwd=app))
    built = app / "dist"
    async with await browser.new_page() as page:
        # a page of the server's own origin, as an app that stands behind the same proxy has it
        await page.route(
            f"{server_url}/app", lambda route: route.fulfill(path=built / "index.html")
        )
        await page.route(
            f"{server_url}/assets/*",
            lambda route: route.fulfill(path=built / "assets" / Path(route.request.url).name),
        )
        await page.goto(f"{server_url}/app")
        await page.get_by_label("Message").fill("set-color to blue")
        await page.get_by_role("button", name="Send").click()
        answer = 'Done. set-color answered: "{"shown": "blue"}".'
        await expect(page.locator("p.assistant")).to_have_text(answer)
        assert await page.evaluate("document.body.style.background") == "blue"


def test_a_typo_in_an_argument_does_not_compile(app: Path) -> None:
    source = app / "src" / "main.tsx"
    good = source.read_text()
    source.write_text(good.replace("execute: ({ color }) =>", "execute: ({ colour: color }) =>"))
    try:
        with pytest.raises(AssertionError, match="Property 'colour' does not exist"):
            node(module("typescript/bin/tsc"), cwd=app)
    finally:
        source.write_text(good)
