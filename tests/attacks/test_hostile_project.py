"""`passback acp` in the folder of a project that is a stranger's: nothing of it runs or counts."""

import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from tests.support.acp_editor import SECONDS, Editor, acp_command, acp_environment, joined_text
from tests.support.mcp_servers import ROOT, TOOLS

pytestmark = pytest.mark.anyio

AGENT = "from passback import Agent, tool\n\nagent = Agent(prompt='You are {}.')\n"
TRAP = "import pathlib\n\npathlib.Path(__file__).with_suffix('.ran').touch()\n"
TRAPS = ("mcp", "uvloop", "my_agents", "websockets", "httpx2")
SCRIPT = str(Path(sys.executable).with_name("passback"))
AS_MODULE = (sys.executable, "-m", "passback")
AS_TEXT = (sys.executable, "-c", "import sys; from passback.cli import main; sys.exit(main())")
SERVER = {
    "name": "parcels",
    "command": TOOLS[0],
    "args": ["-P", *TOOLS[1:]],  # or Python itself would import from the project
    "env": [{"name": "PYTHONPATH", "value": str(ROOT)}],
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder whose modules are traps, and whose settings keep sessions within it."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name in TRAPS:
        agent = AGENT.format("hostile") if name == "my_agents" else ""
        (folder / f"{name}.py").write_text(TRAP + agent)
    (folder / ".env").write_text(f"PASSBACK_STORE=sqlite:///{folder}/stolen.db\n")
    return folder


@pytest.fixture
def agents(tmp_path: Path) -> Path:
    """The folder of the user's own agent."""
    folder = tmp_path / "agents"
    folder.mkdir()
    (folder / "my_agents.py").write_text(AGENT.format("mine") + "import beside\n")
    (folder / "beside.py").write_text("")
    return folder


def left_behind(project: Path) -> set[str]:
    """Return what was written into the project."""
    return {each.name for each in project.iterdir() if each.suffix in {".ran", ".db"}}


def variables(project: Path, **more: str) -> dict[str, str]:
    state = str(project.parent / "state")
    paths = os.pathsep.join(filter(None, (more.pop("PYTHONPATH", ""), str(ROOT / "server"))))
    return {**acp_environment(), "XDG_STATE_HOME": state, "PYTHONPATH": paths, **more}


@asynccontextmanager
async def editor_in(
    project: Path, command: Sequence[str], environment: dict[str, str]
) -> AsyncGenerator[Editor]:
    """An editor that starts a command in a project, and checks that it ends well."""
    process = await anyio.open_process(command, cwd=project, env=environment, stderr=None)
    async with process, anyio.create_task_group() as tasks:
        editor = Editor(process, tasks)
        tasks.start_soon(editor.read)
        try:
            yield editor
            assert await editor.close() == 0
        finally:
            if process.returncode is None:
                process.kill()


def refusal(project: Path, command: Sequence[str], environment: dict[str, str]) -> str:
    """Run a command that cannot start, and return what it says."""
    with tempfile.TemporaryFile("w+") as said:
        code = subprocess.run(
            command,
            cwd=project,
            env=environment,
            stdin=subprocess.DEVNULL,
            stderr=said,
            timeout=SECONDS,
            check=False,
        ).returncode
        said.seek(0)
        assert code == 2
        return said.read()


async def talk(editor: Editor, project: Path) -> None:
    """Use what is imported late: servers of tools, and an agent's answer."""
    await editor.open()
    session = await editor.new_session(project, mcpServers=[SERVER])
    assert await editor.prompt(session, "Hello") == "end_turn"
    assert joined_text(editor.updates(session))


# ---------------------------------------------------------------- attacks
@pytest.mark.parametrize("command", [(SCRIPT,), AS_MODULE, AS_TEXT], ids=["script", "-m", "-c"])
async def test_nothing_of_the_project_runs_or_counts(
    project: Path, agents: Path, command: Sequence[str]
) -> None:
    environment = variables(project, PYTHONPATH=str(agents))
    async with editor_in(project, [*command, "acp", "my_agents:agent"], environment) as editor:
        await talk(editor, project)
    assert left_behind(project) == set()
    assert (project.parent / "state" / "passback").is_dir()


@pytest.mark.parametrize("command", [(SCRIPT,), AS_MODULE], ids=["script", "-m"])
@pytest.mark.parametrize("paths", ["", os.pathsep])
def test_an_agent_of_the_project_is_not_found(
    project: Path, command: Sequence[str], paths: str
) -> None:
    environment = variables(project, PYTHONPATH=paths)
    assert refusal(project, [*command, "acp", "my_agents:agent"], environment) == (
        "passback: 'my_agents:agent': there is no module 'my_agents': set PYTHONPATH to the "
        "folder that has it (the current folder, which may be anyone's project, is not searched)\n"
    )
    assert left_behind(project) == set()


def test_an_error_of_the_users_agent_has_its_place(project: Path, agents: Path) -> None:
    (agents / "my_agents.py").write_text("import passback\n\npassback.Agent(max_turns=0)\n")
    environment = variables(project, PYTHONPATH=str(agents))
    assert "(my_agents.py, line 3)" in refusal(project, acp_command("my_agents:agent"), environment)


# ---------------------------------------------------------------- what the user names
@pytest.mark.parametrize("safe", ["", "1"])
@pytest.mark.parametrize("behind", [True, False])
async def test_a_folder_that_is_named_is_searched_in_its_place(
    project: Path, agents: Path, *, behind: bool, safe: str
) -> None:
    for name in set(TRAPS) - {"my_agents"}:
        (project / f"{name}.py").unlink()
    paths = f"{agents}{os.pathsep}." if behind else f".{os.pathsep}{agents}"
    environment = variables(project, PYTHONPATH=paths, PYTHONSAFEPATH=safe)
    async with editor_in(project, acp_command("my_agents:agent"), environment) as editor:
        await talk(editor, project)
    assert left_behind(project) == (set() if behind else {"my_agents.ran"})


async def test_settings_of_a_file_that_is_named_count(project: Path, agents: Path) -> None:
    environment = variables(project, PYTHONPATH=str(agents))
    command = acp_command("my_agents:agent", "--env-file", ".env")
    async with editor_in(project, command, environment) as editor:
        await talk(editor, project)
    assert left_behind(project) == {"stolen.db"}
