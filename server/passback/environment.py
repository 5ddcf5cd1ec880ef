"""The variables that settings are read from: the environment, an `.env` file, files with secrets.

The environment wins over the `.env` file, and flags win over both. Nothing is put into the
environment of the process.
"""

import io
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dotenv.parser import parse_stream

from passback.core.errors import ConfigurationError
from passback.settings import PREFIX, STATE_HOME, all_settings, variable_name

DEFAULT_ENV_FILE = Path(".env")
_SUFFIX = "_FILE"  # of the variable that has the path of a file with a secret
_MAX_SECRET_BYTES = 64 * 1024

_VARIABLES = frozenset(variable_name(one.name) for one in all_settings())
_SECRETS = frozenset(variable_name(one.name) for one in all_settings() if one.metadata["is_secret"])
_SECRET_FILES = frozenset(name + _SUFFIX for name in _SECRETS)


@dataclass(frozen=True, slots=True)
class EnvFile:
    """An `.env` file: its variables that are settings, and a warning if others can read secrets."""

    variables: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    warning: str | None = None


def read_variables(
    environment: Mapping[str, str], env_file: EnvFile, flags: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables that settings may be read from; secrets in files are read.

    Args:
        environment: of the process.
        env_file: wins over nothing.
        flags: of the command line, by the names of their variables. They win over both.

    Raises:
        ConfigurationError: a secret is given twice, or its file cannot be read.
    """
    merged: dict[str, str] = {}
    for layer in (env_file.variables, environment, flags):
        # a secret replaces the file that a weaker layer names for it, and the other way round
        for name in layer.keys() & (_SECRETS | _SECRET_FILES):
            merged.pop(_counterpart(name), None)
        merged |= {name: value for name, value in layer.items() if _is_setting(name)}
    for name in sorted(_SECRET_FILES & merged.keys()):
        if path := merged.pop(name):
            secret = _counterpart(name)
            if merged.get(secret):
                raise ConfigurationError(f"{name}: {secret} is set, too: set one of the two")
            merged[secret] = _read_secret(name, path)
    if STATE_HOME in environment:
        merged[STATE_HOME] = environment[STATE_HOME]
    return merged


def _is_setting(name: str) -> bool:
    return name.startswith(PREFIX) or name in _VARIABLES | _SECRET_FILES


def _counterpart(name: str) -> str:
    return name + _SUFFIX if name in _SECRETS else name.removesuffix(_SUFFIX)


def _read_secret(name: str, path: str) -> str:
    """Return the content of a file without the newline at its end."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_SECRET_BYTES + 1)
        text = content.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise ConfigurationError(f"{name}: cannot read {path}: {error.strerror}") from None
    except ValueError:  # without a cause, as the error has the content
        raise ConfigurationError(f"{name}: {path} is not a text in UTF-8") from None
    if not text or len(content) > _MAX_SECRET_BYTES:
        raise ConfigurationError(
            f"{name}: {path} is empty, or larger than {_MAX_SECRET_BYTES} bytes"
        )
    return text


def load_env_file(path: Path | None, /) -> EnvFile:
    """Read an `.env` file. Without a path, or if the default file is not there, it is empty.

    Values are taken as they are: no variable in them is expanded.

    Raises:
        ConfigurationError: the file cannot be read, or a line of it is malformed.
    """
    if path is None or (path is DEFAULT_ENV_FILE and not path.exists()):
        return EnvFile()
    try:
        text, mode = path.read_text("utf-8"), path.stat().st_mode
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError:  # without a cause, as the error has the content
        raise ConfigurationError(f"{path}: it is not a text in UTF-8") from None
    variables = dict(_read_lines(path, text))
    if variables.keys() & _SECRETS and mode & stat.S_IROTH:
        warning = f"every user of this machine can read the secrets in {path}: chmod 600 {path}"
        return EnvFile(variables, warning)
    return EnvFile(variables)


def _read_lines(path: Path, text: str) -> Iterator[tuple[str, str]]:
    for one in parse_stream(io.StringIO(text)):
        is_setting = one.key is not None and _is_setting(one.key)
        if one.error or (is_setting and one.value is None):
            # the parser counts from the blank lines before
            written = one.original.string
            blank = written[: len(written) - len(written.lstrip())]
            line = one.original.line + blank.count("\n")
            raise ConfigurationError(f"{path}, line {line}: must be NAME=VALUE, or a comment")
        if is_setting and one.key is not None and one.value is not None:
            yield one.key, one.value
