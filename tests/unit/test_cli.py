"""The command line in processes of its own: what it prints, and how it ends."""

import socket
from pathlib import Path

import anyio
import httpx
import pytest
from tests.support.commands import passback
from tests.support.server import running_server

from passback import __version__
from passback.cli import EXIT_USAGE, main
from passback.commands.serve import _open_socket
from passback.workers import EXIT_FAILED

AGENT = """
from passback import Agent, tool

@tool
def roll(sides: int = 6) -> int:
    "Roll a die."
    return sides

agent = Agent(prompt="You run a game.", tools=[roll])
not_one = "an agent"
"""


AGENTS = """
def named(name):
    return tool(lambda: 1, name=name)

clash = Agent(tools=[roll, roll])
data = Agent(tools=[named("query_data")], data_tools=True)
boss = Agent(agents=[Agent(name="helper", plan=True, tools=[named("update_plan")])])
calls_roll = Agent(tools=[roll], agents=[Agent(name="roll")])
answers = Agent(output_schema={"type": "array"})
"""
"""Agents that cannot be served."""

MODULES = {
    "broken": "agent = = 1\n",
    "needs": "import nosuch\n",
    "fails": "import os\n\nkey = os.environ['NO_SUCH_KEY']\n",
    "exits": "raise SystemExit('so\\nlong')\n",
    "empty": "",
    "other": "from passback import Agent\n\nagent = Agent()\n",
    "model": "from passback import Agent\n\nagent = Agent(model='gpt-5')\n",
    "models": "from passback import Agent\nagent = Agent(models=['demo', 'claude-5'])\n",
    "wrong": "from passback import Agent\n\nagent = Agent(\n    max_turns=0,\n)\n",
}


# ---------------------------------------------------------------- usage
def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"passback {__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["fly"], ["serve", "--no-such-flag", "1"]])
def test_wrong_usage_prints_the_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=str(EXIT_USAGE)):
        main(arguments)
    assert "usage: passback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            ["replai"],
            (
                "unknown command 'replai' (did you mean replay?); "
                "there are serve, acp, check, replay, move, erase"
            ),
        ),
        (["dance"], "unknown command 'dance'; there are serve, acp, check, replay, move, erase"),
        (["serve", "--prot", "1"], "unknown flag --prot (did you mean --port?)"),
        (
            ["check", "a:b", "--model-api-kye", "sk-secret", "--api-kyes=sk-secret"],
            (
                "unknown flag --model-api-kye (did you mean --model-api-key?), "
                "--api-kyes (did you mean --api-keys?)"
            ),
        ),
        (
            ["serve", "--api-kyes", "-sekrit"],
            "unknown flag --api-kyes (did you mean --api-keys?), -s",
        ),
        (["replay", "file", "--prot", "1"], "unknown flag --prot (did you mean --port?)"),
        (["serve", "a:b", "--port", "1", "c:d"], "arguments too many: c:d"),
        (
            ["serve", "--max-run-tokens", "5", "--lease=5"],
            (
                "unknown flag --max-run-tokens (write --run-budget tokens=...), "
                "--lease (write --timing lease=...)"
            ),
        ),
    ],
)
def test_an_unknown_flag_or_command_is_an_error_with_a_suggestion(
    arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=str(EXIT_USAGE)):
        main(arguments)
    *_, line = capsys.readouterr().err.splitlines()
    assert line == f"passback: error: {error}"


def test_the_help_names_every_flag_with_its_variable(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["serve", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "--model-api-key MODEL_API_KEY its key" in text
    assert "(PASSBACK_MODEL_API_KEY)" in text
    assert "MODULE:AGENT" in text


WRONG: list[tuple[list[str], dict[str, str], str]] = [
    (
        [],
        {"PASSBACK_MODLE": "1"},
        "passback: unknown setting PASSBACK_MODLE (did you mean PASSBACK_MODEL?)\n",
    ),
    (["--port", "x"], {}, "passback: PASSBACK_PORT: must be a whole number from 0 to 65535\n"),
    (
        ["--model", "gpt-5"],
        {},
        (
            "passback: PASSBACK_MODEL: no model is called 'gpt-5' (did you mean openai:gpt-5?); "
            "a model is KIND:NAME, of the kinds demo, openai, openai-responses, anthropic\n"
        ),
    ),
    (
        ["--model", "demo", "--models", "demo:fst"],
        {},
        (
            "passback: PASSBACK_MODELS: no model is called 'demo:fst' (did you mean demo:fast?); "
            "of the kind demo there are demo, demo:fast\n"
        ),
    ),
    (
        ["--model", "demo:fst"],
        {},
        (
            "passback: PASSBACK_MODEL: no model is called 'demo:fst' (did you mean demo:fast?); "
            "of the kind demo there are demo, demo:fast\n"
        ),
    ),
    (
        ["my_agent:agent", "other:agent"],
        {},
        (
            "passback: 'my_agent:agent' and 'other:agent' are both named 'agent': "
            "give one of them another name, as in Agent(name='other')\n"
        ),
    ),
    (["--store", "mysql:x"], {}, "passback: PASSBACK_STORE: the store's URL has to begin"),
    (["my_agent"], {}, "passback: 'my_agent' is not MODULE:AGENT, such as my_agent:agent\n"),
    ([":agent"], {}, "passback: ':agent' is not MODULE:AGENT, such as my_agent:agent\n"),
    ([".my:agent"], {}, "passback: '.my:agent' is not MODULE:AGENT, such as"),
    (
        ["nosuch:agent"],
        {},
        (
            "passback: 'nosuch:agent': there is no module 'nosuch', "
            "neither in {folder} nor installed\n"
        ),
    ),
    (
        ["no.such:agent"],
        {},
        (
            "passback: 'no.such:agent': there is no module 'no.such', "
            "neither in {folder} nor installed\n"
        ),
    ),
    (
        ["my_agent.py:agent"],
        {},
        "passback: 'my_agent.py:agent': leave .py out, as in my_agent:agent\n",
    ),
    (
        ["needs:agent"],
        {},
        "passback: 'needs:agent' cannot be loaded: No module named 'nosuch' (needs.py, line 1)\n",
    ),
    (
        ["fails:agent"],
        {},
        "passback: 'fails:agent' cannot be loaded: KeyError: 'NO_SUCH_KEY' (fails.py, line 3)\n",
    ),
    (
        ["exits:agent"],
        {},
        "passback: 'exits:agent' cannot be loaded: SystemExit: so long (exits.py, line 1)\n",
    ),
    (["my_agent:clash"], {}, "passback: the agent 'clash': two tools are named 'roll'\n"),
    (["my_agent:data"], {}, "passback: the agent 'data': two tools are named 'query_data'\n"),
    (["my_agent:boss"], {}, "passback: the agent 'helper': two tools are named 'update_plan'\n"),
    (["my_agent:calls_roll"], {}, "passback: the agent 'calls_roll': two tools are named 'roll'\n"),
    (
        ["my_agent:answers"],
        {},
        "passback: the agent's output_schema: its schema is not of type 'object'\n",
    ),
    (
        ["wrong:agent"],
        {},
        (
            "passback: 'wrong:agent' cannot be loaded: Agent: max_turns: "
            "Input should be greater than or equal to 1 (given: 0) (wrong.py, line 3)\n"
        ),
    ),
    (
        ["model:agent"],
        {},
        (
            "passback: 'model:agent' cannot be loaded: Agent: model: no model is called 'gpt-5' "
            "(did you mean openai:gpt-5?); "
            "a model is KIND:NAME, of the kinds demo, openai, openai-responses, anthropic (model.py, line 3)\n"
        ),
    ),
    (
        ["models:agent"],
        {},
        (
            "passback: 'models:agent' cannot be loaded: Agent: models: "
            "no model is called 'claude-5' (did you mean anthropic:claude-5?); "
            "a model is KIND:NAME, of the kinds demo, openai, openai-responses, anthropic (models.py, line 2)\n"
        ),
    ),
    (
        ["empty:agent"],
        {},
        "passback: 'empty:agent': empty has no Agent called 'agent'; it has none\n",
    ),
    (["broken:agent"], {}, "passback: 'broken:agent' cannot be loaded: invalid syntax"),
    (
        ["badtool:agent"],
        {},
        (
            "passback: 'badtool:agent' cannot be loaded: tool 'roll': "
            "parameters must be passable by name (badtool.py, line 4)\n"
        ),
    ),
    (
        ["my_agent:missing"],
        {},
        "passback: 'my_agent:missing': my_agent has no Agent called 'missing'; it has {agents}\n",
    ),
    (
        ["my_agent:not_one"],
        {},
        "passback: 'my_agent:not_one': my_agent has no Agent called 'not_one'; it has {agents}\n",
    ),
]
"""Arguments, variables of the environment, and the error."""


@pytest.mark.parametrize(
    ("command", "arguments", "environment", "error"),
    [("check", *each) for each in WRONG] + [("serve", *each) for each in WRONG[::6]],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_error_at_start_is_one_line(
    command: str, arguments: list[str], environment: dict[str, str], error: str, tmp_path: Path
) -> None:
    (tmp_path / "my_agent.py").write_text(AGENT + AGENTS)
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    agents = "agent, clash, data, boss, calls_roll, answers"
    error = error.format(folder=tmp_path, agents=agents)
    (tmp_path / "badtool.py").write_text(AGENT.replace("sides: int = 6", "*sides: int"))
    store = [] if "--store" in arguments else ["--store", "memory:"]
    ended = passback(command, *store, *arguments, cwd=tmp_path, **environment)
    assert ended.returncode == EXIT_USAGE
    assert ended.stdout == ""
    assert ended.stderr.startswith(error)
    assert ended.stderr.count("\n") == 1


def test_with_debug_logs_an_error_has_its_traceback(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text(MODULES["fails"])
    ended = passback("check", "fails:agent", "--log-level", "debug", cwd=tmp_path)
    assert ended.returncode == EXIT_USAGE
    assert "Traceback (most recent call last):\n" in ended.stderr
    error = "passback: 'fails:agent' cannot be loaded: KeyError: 'NO_SUCH_KEY' (fails.py, line 3)"
    assert ended.stderr.splitlines()[-1] == error


# ---------------------------------------------------------------- several workers
@pytest.mark.parametrize("command", ["serve", "check"])
def test_workers_with_a_store_in_memory_are_refused(command: str) -> None:
    ended = passback(command, "--store", "memory:", "--workers", "2")
    assert (ended.returncode, ended.stdout) == (EXIT_USAGE, "")
    assert ended.stderr == (
        "passback: PASSBACK_WORKERS: several workers cannot share the store memory:; "
        "use sqlite: or redis:\n"
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("agent = = 1", "'mine:agent' cannot be loaded: invalid syntax (mine.py, line 1)"),
        ("agent = 1", "'mine:agent': mine has no Agent called 'agent'; it has none"),
        ("agent = {}['key']", "'mine:agent' cannot be loaded: KeyError: 'key' (mine.py, line 1)"),
    ],
)
def test_a_failure_to_start_is_reported_once(tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "mine.py").write_text(text)
    flags = ("--store", f"sqlite:///{tmp_path}/passback.db", "--port", "0", "--workers", "2")
    ended = passback("serve", "mine:agent", *flags, cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (EXIT_USAGE, "")
    assert ended.stderr == f"passback: {error}\n"


def test_an_answer_is_not_held_back_until_the_client_has_the_one_before() -> None:
    """Uvloop sees to it by itself, other event loops do not."""
    with _open_socket("127.0.0.1", 0, "") as listening:
        assert listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_port_in_use_is_an_error_of_one_line(workers: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        flags = ("--port", str(taken.getsockname()[1]), "--workers", workers)
        ended = passback("serve", *flags, "--store", f"sqlite:///{tmp_path}/passback.db")
    assert (ended.returncode, ended.stdout) == (EXIT_USAGE, "")
    assert ended.stderr.startswith(
        "passback: PASSBACK_HOST, PASSBACK_PORT: cannot listen: Address already in use"
    )
    assert ended.stderr.count("\n") == 1


def test_a_key_of_two_owners_is_an_error_that_does_not_show_it() -> None:
    keys = "alice:a-key-of-16-letters,bob:a-key-of-16-letters"
    ended = passback("serve", PASSBACK_API_KEYS=keys, PASSBACK_STORE="memory:")
    assert (ended.returncode, ended.stdout) == (EXIT_USAGE, "")
    assert ended.stderr == (
        "passback: PASSBACK_API_KEYS: must be a key of its own for each owner: 'alice' and 'bob' "
        "have the same one\n"
    )


def test_each_wrong_setting_is_an_error_of_one_line() -> None:
    flags = ("--port", "x", "--timing", "ping=5", "--timing", "lease=0", "--limits", "queue=2")
    ended = passback("check", *flags, PASSBACK_POORT="1", PASSBACK_PING="1")
    assert (ended.returncode, ended.stdout) == (EXIT_USAGE, "")
    assert ended.stderr.splitlines() == [
        'passback: PASSBACK_PING: write PASSBACK_TIMING="ping=..."',
        "passback: unknown setting PASSBACK_POORT (did you mean PASSBACK_PORT?)",
        "passback: PASSBACK_PORT: must be a whole number from 0 to 65535",
        "passback: PASSBACK_TIMING: lease must be a number from 1 to 600",
    ]


def test_the_parts_of_a_repeated_flag_are_added_up() -> None:
    ended = passback("check", "--timing", "lease=601", "--timing", "ping=5")
    assert ended.stderr == "passback: PASSBACK_TIMING: lease must be a number from 1 to 600\n"


def test_a_secret_in_a_wrong_setting_is_not_shown() -> None:
    ended = passback("serve", PASSBACK_PORT="sk-secret", PASSBACK_STORE="memory:")
    assert ended.returncode == EXIT_USAGE
    assert "sk-secret" not in ended.stderr


@pytest.mark.parametrize(
    ("command", "host", "workers"),
    [("check", "0.0.0.0", "1"), ("serve", "0.0.0.0", "1"), ("serve", "::", "2")],
)
def test_serving_others_without_keys_needs_a_setting(
    command: str, host: str, workers: str, tmp_path: Path
) -> None:
    flags = ("--host", host, "--port", "0", "--workers", workers)
    store = f"sqlite:///{tmp_path}/store.db"
    ended = passback(command, *flags, "--store", store, PASSBACK_API_KEYS="")
    assert (ended.returncode, ended.stdout) == (EXIT_USAGE, "")
    assert ended.stderr == (
        f"passback: PASSBACK_HOST: others can reach {host}, and no keys are set: set "
        "PASSBACK_API_KEYS, or listen on 127.0.0.1; to serve everybody without a key, set "
        "PASSBACK_ALLOW_ANONYMOUS=yes\n"
    )
    assert not (tmp_path / "store.db").exists()


# ---------------------------------------------------------------- check
def test_check_prints_that_all_is_ok(tmp_path: Path) -> None:
    (tmp_path / "my_agent.py").write_text(AGENT)
    store = f"sqlite:///{tmp_path}/state/passback.db"
    ended = passback("check", "my_agent:agent", "--store", store, cwd=tmp_path)
    assert ended.stdout == (
        f"settings  ok\nstore     {store}: ok\nmodel     demo: ok\n"
        "allowed   1 tool may write and needs no permission: roll\n"
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_check_names_the_first_of_many_tools_that_need_no_permission(tmp_path: Path) -> None:
    many = '[tool(name=f"tool{number}")(lambda: None) for number in range(22)]'
    text = f"from passback import Agent, tool\n\nagent = Agent(tools={many})\n"
    (tmp_path / "many.py").write_text(text)
    ended = passback("check", "many:agent", "--store", "memory:", cwd=tmp_path)
    names = ", ".join(f"tool{number}" for number in range(20))
    assert ended.stdout.splitlines()[-1] == (
        f"allowed   22 tools may write and need no permission: {names} and 2 more"
    )
    assert ended.returncode == 0


def test_check_prints_each_error_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = f"sqlite:///{tmp_path}/file/passback.db"
    with socket.create_server(("127.0.0.1", 0)) as unused:
        nowhere = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
    model = ("--model", "openai:gpt-test", "--model-base-url", nowhere, "--model-api-key", "sk-hid")
    ended = passback("check", "--store", store, *model)
    assert ended.returncode == EXIT_FAILED
    settings, broken_store, broken_model = ended.stdout.splitlines()
    assert settings == "settings  ok"
    assert broken_store.startswith(f"store     {store}: ")
    assert broken_model.startswith("model     openai:gpt-test: ")
    assert not broken_store.endswith(": ok")
    assert not broken_model.endswith(": ok")
    assert "sk-hid" not in ended.stdout + ended.stderr


def test_check_shows_the_stores_warnings() -> None:
    ended = passback("check", "--store", "memory:")
    assert ended.returncode == 0
    assert "          warning: The store is in memory" in ended.stdout


# ---------------------------------------------------------------- serve
@pytest.mark.anyio
async def test_serve_prints_its_address_and_stops_on_sigterm(tmp_path: Path) -> None:
    (tmp_path / "my_agent.py").write_text(AGENT)
    with anyio.fail_after(40):
        async with running_server("my_agent:agent", cwd=str(tmp_path)) as server:
            async with httpx.AsyncClient() as client:
                assert (await client.get(f"{server.url}/healthz")).status_code == 200
            server.terminate()
            await server.process.wait()
        assert server.process.returncode == 0


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("flags", "environment", "warned", "pages"),
    [
        (["--host", "127.0.0.1"], {"PASSBACK_ALLOW_LOOPBACK_PAGES": "no"}, False, False),
        (["--host", "0.0.0.0"], {"PASSBACK_ALLOW_ANONYMOUS": "yes"}, True, False),
        (["--allow-anonymous", "yes"], {"PASSBACK_HOST": "0.0.0.0"}, True, False),
        (["--host", "127.0.0.1"], {"PASSBACK_HOST": "0.0.0.0"}, False, True),
        (["--host", "0.0.0.0"], {"PASSBACK_API_KEYS": "ann:0123456789abcdef"}, False, False),
    ],
)
async def test_serving_everybody_without_authentication_is_a_warning(
    flags: list[str], environment: dict[str, str], warned: bool, pages: bool, tmp_path: Path
) -> None:
    """A flag wins over its variable, and the banner names the origins that may call."""
    store, log = f"sqlite:///{tmp_path}/store.db", tmp_path / "log"
    with log.open("wb") as stderr:
        arguments = ["--store", store, *flags]
        async with running_server(*arguments, environment=environment, stderr=stderr) as server:
            server.terminate()
            assert await server.exit_code() == 0
    banner = server.banner.splitlines()[:-1]
    assert banner[0].startswith(f"passback {__version__} is listening on http://")
    lines = dict(line.split()[:2] for line in banner[2:] if line.strip())
    assert list(lines) == ["page", "curl", "store", "model", *(["origins"] if pages else [])]
    assert lines["store"] == store
    assert ("without authentication" in log.read_text()) is warned
