"""Where settings come from: the environment, an `.env` file, files with secrets, flags."""

import os
from pathlib import Path

import pytest
from tests.support.commands import passback

from passback.cli import EXIT_USAGE
from passback.core.errors import ConfigurationError
from passback.environment import DEFAULT_ENV_FILE, EnvFile, load_env_file, read_variables

KEY = "0123456789abcdef"
SECRETS = [
    "PASSBACK_STORE",
    "PASSBACK_MODEL_API_KEY",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "PASSBACK_API_KEYS",
]


def env_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / ".env"
    path.write_text(text)
    path.chmod(mode)
    return path


# ---------------------------------------------------------------- precedence
def test_flags_win_over_the_environment_and_the_environment_over_the_file() -> None:
    file = EnvFile(dict.fromkeys(("PASSBACK_A", "PASSBACK_B", "PASSBACK_C"), "file"))
    environment = {"PASSBACK_B": "variable", "PASSBACK_C": "variable", "HOME": "/home/you"}
    read = read_variables(environment, file, {"PASSBACK_C": "flag"})
    assert read == {"PASSBACK_A": "file", "PASSBACK_B": "variable", "PASSBACK_C": "flag"}


def test_an_empty_variable_hides_that_of_the_file() -> None:
    file = EnvFile({"PASSBACK_MODEL": "demo:fast", "PASSBACK_API_KEYS_FILE": "/nosuch"})
    assert read_variables({"PASSBACK_MODEL": "", "PASSBACK_API_KEYS": ""}, file, {}) == {
        "PASSBACK_MODEL": "",
        "PASSBACK_API_KEYS": "",
    }


def test_the_state_folder_is_that_of_the_environment(tmp_path: Path) -> None:
    path = env_file(tmp_path, "XDG_STATE_HOME=/elsewhere\n")
    read = read_variables({"XDG_STATE_HOME": "/state"}, load_env_file(path), {})
    assert read == {"XDG_STATE_HOME": "/state"}


# ---------------------------------------------------------------- secrets in files
@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_secret_may_be_in_a_file(name: str, end: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b" first\nsecond " + end.encode())
    read = read_variables({f"{name}_FILE": str(tmp_path / "secret")}, EnvFile(), {})
    assert read == {name: " first\nsecond "}


def test_a_setting_that_is_no_secret_has_no_file() -> None:
    given = {"PASSBACK_PORT_FILE": "/nosuch"}
    assert read_variables(given, EnvFile(), {}) == given  # an unknown setting


def test_a_secret_or_its_file_replaces_both_of_a_weaker_source(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the file")
    file = EnvFile({"OPENAI_API_KEY": "weak", "PASSBACK_STORE_FILE": "/nosuch"})
    environment = {"OPENAI_API_KEY_FILE": str(tmp_path / "secret"), "PASSBACK_STORE": "memory:"}
    read = read_variables(environment, file, {})
    assert read == {"OPENAI_API_KEY": "of the file", "PASSBACK_STORE": "memory:"}
    assert read_variables(environment, file, {"OPENAI_API_KEY": ""})["OPENAI_API_KEY"] == ""


def test_a_secret_and_its_file_together_are_refused() -> None:
    given = {"PASSBACK_API_KEYS": f"ann:{KEY}", "PASSBACK_API_KEYS_FILE": "/nosuch"}
    with pytest.raises(ConfigurationError) as raised:
        read_variables(given, EnvFile(), {})
    assert raised.value.message == (
        "PASSBACK_API_KEYS_FILE: PASSBACK_API_KEYS is set, too: set one of the two"
    )


def test_an_empty_secret_or_file_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    path = str(tmp_path / "secret")
    given = {"PASSBACK_API_KEYS": "", "PASSBACK_API_KEYS_FILE": path, "PASSBACK_STORE_FILE": ""}
    assert read_variables(given, EnvFile(), {}) == {"PASSBACK_API_KEYS": "x"}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot read {path}: No such file or directory"),
        (b"", "{path} is empty, or larger than 65536 bytes"),
        (b"\n", "{path} is empty, or larger than 65536 bytes"),
        (b"s" * 65537, "{path} is empty, or larger than 65536 bytes"),
        (b"hidden\xff", "{path} is not a text in UTF-8"),
    ],
)
def test_an_unusable_secrets_file_is_named_without_its_content(
    content: bytes | None, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError) as raised:
        read_variables({"PASSBACK_STORE_FILE": str(path)}, EnvFile(), {})
    assert raised.value.message == f"PASSBACK_STORE_FILE: {problem.format(path=path)}"
    assert raised.value.__cause__ is None


# ---------------------------------------------------------------- the file .env
def test_only_settings_are_read_from_the_file_without_expansion(tmp_path: Path) -> None:
    text = """# a comment
export PASSBACK_PORT=8001
PASSBACK_PROMPT='Be brief, $USER: ${HOME}'   # another one
PASSBACK_TIMING = "lease=15 ping=30"
PASSBACK_MODEL=demo
PASSBACK_MODEL=demo:fast

OPENAI_API_KEY=sk-1
ANTHROPIC_API_KEY_FILE=/run/secrets/key
REDIS_PASSWORD=hunter2
HOME=/elsewhere
alone
"""
    before = dict(os.environ)
    assert load_env_file(env_file(tmp_path, text)) == EnvFile(
        {
            "PASSBACK_PORT": "8001",
            "PASSBACK_PROMPT": "Be brief, $USER: ${HOME}",
            "PASSBACK_TIMING": "lease=15 ping=30",
            "PASSBACK_MODEL": "demo:fast",
            "OPENAI_API_KEY": "sk-1",
            "ANTHROPIC_API_KEY_FILE": "/run/secrets/key",
        }
    )
    assert dict(os.environ) == before


def test_no_file_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_env_file(None) == EnvFile()
    assert load_env_file(DEFAULT_ENV_FILE) == EnvFile()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("hidden words\n", 1),
        ("# fine\n\n\nPASSBACK_PORT=1\n\n\n=hidden\n", 7),
        ("PASSBACK_PROMPT='hidden\n", 1),
        ("\nPASSBACK_PORT\n", 2),
    ],
)
def test_a_malformed_line_is_named_by_its_number(text: str, line: int, tmp_path: Path) -> None:
    path = env_file(tmp_path, text)
    with pytest.raises(ConfigurationError) as raised:
        load_env_file(path)
    assert raised.value.message == f"{path}, line {line}: must be NAME=VALUE, or a comment"


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none: cannot be read: No such file"):
        load_env_file(tmp_path / "none")
    (tmp_path / "odd").write_bytes(b"PASSBACK_PROMPT=hidden\xff\n")
    with pytest.raises(ConfigurationError, match=r"odd: it is not a text in UTF-8$") as raised:
        load_env_file(tmp_path / "odd")
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    ("text", "mode", "warned"),
    [
        ("OPENAI_API_KEY=sk-1", 0o644, True),
        ("OPENAI_API_KEY=sk-1", 0o640, False),
        ("PASSBACK_PORT=1", 0o644, False),
    ],
)
def test_secrets_that_everybody_can_read_cause_a_warning(
    text: str, mode: int, warned: bool, tmp_path: Path
) -> None:
    path = env_file(tmp_path, text, mode)
    warning = f"every user of this machine can read the secrets in {path}: chmod 600 {path}"
    assert load_env_file(path).warning == (warning if warned else None)
    assert "sk-1" not in repr(load_env_file(path))


# ---------------------------------------------------------------- the commands
def test_a_command_reads_the_file_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"ann:{KEY}\n")
    text = "PASSBACK_STORE=memory:\nPASSBACK_HOST=0.0.0.0\nPASSBACK_API_KEYS_FILE=keys\n"
    env_file(tmp_path, text)
    ended = passback("check", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "store     memory:: ok" in ended.stdout
    without = passback("check", "--no-env-file", cwd=tmp_path, PASSBACK_HOST="0.0.0.0")
    assert (without.returncode, without.stdout) == (EXIT_USAGE, "")


def test_an_error_says_that_a_file_was_read(tmp_path: Path) -> None:
    env_file(tmp_path, "PASSBACK_PORT=hidden\nPASSBACK_STORE=memory:\n", 0o644)
    ended = passback("check", cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (EXIT_USAGE, "")
    assert ended.stderr.splitlines() == [
        "passback: PASSBACK_PORT: must be a whole number from 0 to 65535",
        f"passback: (settings are also read from {tmp_path}/.env)",
    ]
    ended = passback("check", cwd=tmp_path, PASSBACK_PORT="0")
    assert (ended.returncode, ended.stderr) == (
        0,
        (
            "passback: warning: every user of this machine can read the secrets in .env: "
            "chmod 600 .env\n"
        ),
    )


def test_another_file_may_be_named_and_has_to_exist(tmp_path: Path) -> None:
    env_file(tmp_path, "PASSBACK_PORT=x\n")
    (tmp_path / "mine.env").write_text("PASSBACK_MODEL=demo:fast\n")
    ended = passback("check", "--env-file", "mine.env", "--store", "memory:", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "model     demo:fast: ok" in ended.stdout
    ended = passback("check", "--env-file", "none.env", cwd=tmp_path)
    assert ended.returncode == EXIT_USAGE
    assert ended.stderr == "passback: none.env: cannot be read: No such file or directory\n"
