"""The npm package as somebody has it who installed it: its README, its types, its React hook."""

import json
import re
import shutil
from pathlib import Path

import anyio
import pytest
from tests.support.programs import missing, program
from tests.support.server import Server, running_server

pytestmark = [pytest.mark.anyio, pytest.mark.node]

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "client_tools" / "js"
TESTS = ROOT / "tests" / "js"
SECONDS = 40
STRICT = (
    "--strict",
    "--noEmit",
    "--module",
    "nodenext",
    "--target",
    "es2023",
    "--lib",
    "es2023,dom",
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder in which the package is installed: what its `files` name, and nothing else."""
    if not (TESTS / "node_modules" / "react").exists():
        missing("react in tests/js/node_modules")
    modules = tmp_path / "node_modules"
    modules.mkdir()
    for other in (TESTS / "node_modules").iterdir():
        (modules / other.name).symlink_to(other)
    installed = modules / "passback"
    manifest = json.loads((PACKAGE / "package.json").read_text())
    for name in manifest["files"]:
        shutil.copytree(PACKAGE / name, installed / name)
    shutil.copy(PACKAGE / "package.json", installed)
    (tmp_path / "package.json").write_text('{"type": "module"}\n')
    return tmp_path


async def run(*command: str, cwd: Path) -> str:
    """The output of a Node.js program; what it says when it fails is in the test's report."""
    node = program("node", variable="TEST_NODE")
    with anyio.fail_after(SECONDS):
        done = await anyio.run_process([node, *command], cwd=cwd, check=False)
    output = done.stdout.decode()
    assert done.returncode == 0, output + done.stderr.decode()
    assert not done.stderr, done.stderr.decode()
    return output


def compiler() -> str:
    path = TESTS / "node_modules" / "typescript" / "bin" / "tsc"
    return str(path) if path.exists() else missing("typescript in tests/js/node_modules")


def blocks(language: str) -> list[str]:
    text = (PACKAGE / "README.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


async def test_the_example_of_its_readme_says_what_stands_below_it(
    server: Server, project: Path
) -> None:
    example = blocks("js")[0].replace("http://127.0.0.1:8000", server.url)
    (project / "example.js").write_text(example)
    assert f"{await run('example.js', cwd=project)}\n" == blocks("text")[0]


async def test_a_typescript_program_compiles_against_it(project: Path) -> None:
    shutil.copy(TESTS / "client-types.ts", project)
    await run(compiler(), *STRICT, "client-types.ts", cwd=project)


async def test_the_functions_of_a_tool_have_the_types_of_its_schema(project: Path) -> None:
    shutil.copy(TESTS / "client-tool-types.ts", project)
    # ArkType's own types need those of Node.js
    await run(compiler(), *STRICT, "--skipLibCheck", "client-tool-types.ts", cwd=project)


async def test_its_types_are_those_of_its_source(tmp_path: Path) -> None:
    await run(compiler(), "--project", "tsconfig.types.json", "--outDir", str(tmp_path), cwd=TESTS)
    assert texts(tmp_path) == texts(PACKAGE / "types")


async def test_its_hook_shows_answers_and_leaves_with_its_component(project: Path) -> None:
    shutil.copy(TESTS / "client-react.mjs", project)
    async with running_server() as slow_server:
        seen = json.loads(await run("client-react.mjs", slow_server.url, cwd=project))
    counted = {"role": "assistant", "reasoning": "", "calls": [], "model": "demo"}
    assert seen == {
        "entries": [
            {"role": "user", "text": "count to 3"},
            counted | {"text": "1 2 3 - counted by the demo model."},
        ],
        "text": 'Done. get-time-zone answered: "UTC".',
        "results": ["UTC"],
        "asked": {
            "owed": ["question"],
            "left": 0,
            "text": 'Done. ask_user failed: "Rather not.".',
        },
        "left": "running",
    }
