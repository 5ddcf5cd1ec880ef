"""The distribution as it is installed: built out of its sdist, and served without the checkout."""

import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx
import pytest
from tests.support.server import Server, running_server

from passback import __version__

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment with the wheel; the wheel's dependencies are those of the tests."""

    home: Path
    wheel: Path

    @property
    def python(self) -> str:
        return str(self.home / "bin" / "python")

    @property
    def command(self) -> str:
        return str(self.home / "bin" / "passback")


def run(*command: str, cwd: Path) -> str:
    """The output of a program; what it says when it fails is in the test's report."""
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


PIP = (sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check")


def wheel_of(source: Path, folder: Path) -> Path:
    """Built without network: what builds it is in the environment of the tests."""
    flags = ("--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(folder))
    run(*PIP, "wheel", *flags, str(source), cwd=folder.parent)
    [wheel] = folder.iterdir()
    return wheel


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("distribution")
    build = (sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder / "sdist"))
    run(*build, cwd=ROOT)
    [sdist] = (folder / "sdist").iterdir()
    wheel = wheel_of(sdist, folder / "wheel")
    home = folder / "home"
    venv.create(home, with_pip=False)
    python = str(home / "bin" / "python")
    run(*PIP, "--python", python, "install", "--no-deps", "--no-index", str(wheel), cwd=folder)
    # no `.pth` file in the folder that this one names is read: so the one there that leads to the
    # checkout is not
    [packages] = home.glob("lib/*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Installed(home, wheel)


@pytest.fixture(scope="module")
async def served(
    installed: Installed, store: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Server]:
    async with running_server(
        *("--store", store, "--model", "demo:fast"),
        command=(installed.command, "serve"),
        environment={"PYTHONPATH": ""},
        cwd=str(tmp_path_factory.mktemp("elsewhere")),
    ) as server:
        yield server


def test_the_wheel_is_that_of_the_checkout_and_has_what_it_needs(
    installed: Installed, tmp_path: Path
) -> None:
    names = zipfile.ZipFile(installed.wheel).namelist()
    here = zipfile.ZipFile(wheel_of(ROOT, tmp_path / "wheel")).namelist()
    assert sorted(names) == sorted(here)
    meta = f"passback-{__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"passback", "passback_client", meta}
    needed = {"passback/py.typed", "passback_client/py.typed", f"{meta}/licenses/LICENSE"}
    assert needed <= set(names)


def test_the_image_is_built_of_the_same_files_and_has_the_extras(
    installed: Installed, tmp_path: Path
) -> None:
    """The image gets what `.dockerignore` lets through and the Dockerfile copies."""
    context = tmp_path / "context"
    kept, left_out = ignored((ROOT / ".dockerignore").read_text("utf-8"))
    for name in kept:
        _copy(ROOT / name, context / name, left_out)
    dockerfile = (ROOT / "Dockerfile").read_text("utf-8")
    for names in re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE):
        assert [name for name in names.split() if not (context / name).exists()] == []
    wheel = zipfile.ZipFile(wheel_of(context, tmp_path / "wheel"))
    here = zipfile.ZipFile(installed.wheel)
    assert sorted(wheel.namelist()) == sorted(here.namelist())
    locked = re.findall(r"--require-hashes -r (\S+)", dockerfile)
    assert locked == ["requirements/build.txt", "requirements/image.txt"]
    text = (context / locked[1]).read_text("utf-8")
    has = set(re.findall(r"^([a-z0-9-]+)(?:\[\w+\])?==", text, re.MULTILINE))
    [meta] = [name for name in wheel.namelist() if name.endswith("METADATA")]
    asked = re.findall(
        r"^Requires-Dist: ([\w-]+).*?(?:extra == '(\w+)')?$",
        wheel.read(meta).decode(),
        re.MULTILINE,
    )
    wanted = {name for name, extra in asked if extra in {"", "chat", "mcp"}}
    assert {"mcp", "starlette", "websockets"} <= wanted <= has


def ignored(text: str) -> tuple[list[str], list[str]]:
    """Return what a `.dockerignore` lets through, and the names it leaves out in there."""
    first, *rules = text.split()
    assert first == "*"
    kept = [rule[1:] for rule in rules if rule.startswith("!")]
    left_out = [rule.removeprefix("**/") for rule in rules if rule.startswith("**/")]
    assert len(kept) + len(left_out) == len(rules)
    return kept, left_out


def _copy(source: Path, target: Path, left_out: Sequence[str]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(*left_out))
    else:
        shutil.copy(source, target)


async def test_what_is_installed_serves_its_page_and_its_description(served: Server) -> None:
    async with httpx.AsyncClient(base_url=served.url) as http:
        assert (await http.get("/")).text == _page("playground/index.html")
        files = [*_files("playground", ".js", ".css", ".svg"), *_files("js/src", ".js")]
        for file in files:
            assert (await http.get(f"/{file}")).text == _page(file)
        described = (await http.get("/openapi.json")).json()
    assert len(files) > 20
    assert described["info"]["version"] == __version__
    assert "/send-message" in described["paths"]


def _files(folder: str, *kinds: str) -> list[str]:
    found = (ROOT / "client_tools" / folder).iterdir()
    return [f"{folder}/{file.name}" for file in found if file.suffix in kinds]


def _page(file: str) -> str:
    return (ROOT / "client_tools" / file).read_text("utf-8")


PROGRAM = """
import sys
import passback
import passback_client
from passback_client.sync import Client

with Client(sys.argv[1]) as client:
    @client.tool
    def lamp(color: str) -> str:
        return color
    print(client.ask("Set the lamp to blue").text)
for package in (passback, passback_client):
    print(package.__file__)
"""


async def test_the_installed_client_talks_with_the_installed_server(
    installed: Installed, served: Server, tmp_path: Path
) -> None:
    command = [installed.python, "-I", "-c", PROGRAM, served.url]
    with anyio.fail_after(SECONDS):
        done = await anyio.run_process(command, cwd=tmp_path)
    answer, *places = done.stdout.decode().splitlines()
    assert answer == 'Done. lamp answered: "blue".'
    [packages] = installed.home.glob("lib/*/site-packages")
    names = ("passback", "passback_client")
    assert places == [str(packages / name / "__init__.py") for name in names]
