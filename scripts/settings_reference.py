"""The page docs/reference/settings.md, from the settings of the server.

scripts/generate writes it. As a program, this fails where the page is not that of the settings.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field
from typing import Any, cast

from passback.setting_forms import Form
from passback.settings import all_settings, flag_name, variable_name
from repository import ROOT

PAGE = ROOT / "docs" / "reference" / "settings.md"
COMMAND = "scripts/generate"

HEAD = f"""<!-- Written by `{COMMAND}`: change the settings, then run it. -->

# Settings

Each setting is an environment variable and a flag of `passback serve`, `acp` and `check`
(`PASSBACK_PORT` is `--port`). The flag wins over the variable, and the variable over the file
[`.env`](#the-file-env). An empty variable counts as not set. `passback acp` serves one client,
on its standard input and output: addresses, origins and `PASSBACK_WORKERS` have no effect there.

At start, the server reports everything that is wrong with the settings at once: unknown names, with
a suggestion, and bad values, with what the setting takes. It shows no value, because values may be
secret. `passback check` also tries to reach the store and the model.
"""

PARTS = """## Settings of several parts

Such a setting takes its parts by their names, in any order, separated by spaces or commas; other
parts keep their defaults. If a part is given twice, the last one counts. The flag may be repeated:
`--timing lease=15 --timing ping=30` is the same as `--timing "lease=15 ping=30"`.
"""

FILES = """## The file `.env`

`passback serve` and `check` read the file `.env` of the working folder, if there is one;
`--env-file PATH` reads another one, and `--no-env-file` none. `passback acp` reads only one that
`--env-file` names: an editor starts it in the folder of a project, whose `.env` may be a
stranger's. Each line is `NAME=VALUE` or a comment that begins with `#`. A value may be in quotes;
variables in it are not expanded. A malformed line is an error that names the line.

Only settings are read from the file: names that begin with `PASSBACK_`, and the keys of providers.
Other names are ignored, and the environment of the process stays unchanged. If other users of the
machine can read secrets in the file, a warning says so: `chmod 600 .env`.

## Secrets in files

Each secret may be in a file of its own, such as a Docker or Kubernetes secret. The variable with
`_FILE` at its end has the path: `PASSBACK_API_KEYS_FILE=/run/secrets/api-keys`. A newline at the
file's end is removed. Setting both is an error, and so is a file that cannot be read.
"""


def main() -> int:
    if not PAGE.exists() or PAGE.read_text() != page():
        print(f"docs/reference/settings.md is not that of the settings: run {COMMAND}")
        return 1
    return 0


def write() -> None:
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())


def page() -> str:
    common = [one for one in all_settings() if not one.metadata["is_rare"]]
    rare = [one for one in all_settings() if one.metadata["is_rare"]]
    return "\n".join(
        [HEAD, settings_table(common), "## Rarely needed\n", settings_table(rare), PARTS]
        + [parts_section(form, names) for form, names in settings_of_parts().items()]
        + [FILES, secrets_table()]
    )


def secrets_table() -> str:
    secrets = [variable_name(one.name) for one in all_settings() if one.metadata["is_secret"]]
    return table(("secret", "its file"), ((f"`{name}`", f"`{name}_FILE`") for name in secrets))


def settings_of_parts() -> Mapping[Form, list[str]]:
    """Return the forms that have parts, each with the settings that have this form."""
    names: dict[Form, list[str]] = {}
    for one in all_settings():
        if one.metadata["form"].parts:
            names.setdefault(one.metadata["form"], []).append(one.name)
    return names


def settings_table(settings: Iterable[Field[Any]]) -> str:
    return table(
        ("variable", "takes", "default", "meaning"),
        (
            (
                f"`{variable_name(one.name)}`",
                parts_link(one.name) if one.metadata["form"].parts else one.metadata["form"].text,
                default_text(default_of(one)),
                one.metadata["text"],
            )
            for one in settings
        ),
    )


def default_of(one: Field[Any]) -> object:
    return one.default if one.default_factory is MISSING else one.default_factory()


def parts_link(name: str) -> str:
    [first] = [names[0] for names in settings_of_parts().values() if name in names]
    return f"[parts](#{first.replace('_', '-')})"


def parts_section(form: Form, names: list[str]) -> str:
    [defaults] = [default_of(one) for one in all_settings() if one.name == names[0]]
    heading = ", ".join(f"`{variable_name(name)}`" for name in names)
    rows = (
        (f"`{name}`", part.form.text, default_text(getattr(defaults, name)), part.text)
        for name, part in form.parts.items()
    )
    anchor = f'<a id="{names[0].replace("_", "-")}"></a>\n\n### {heading}\n'
    example = f"As a flag: `{flag_name(names[0])} {next(iter(form.parts))}=...`\n"
    return "\n".join([anchor, example, table(("part", "takes", "default", "meaning"), rows)])


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |") for line in lines)


def default_text(value: object) -> str:
    match value:
        case bool():
            return "`yes`" if value else "`no`"
        case float():
            return f"`{value:g}`"
        case int() | str() if value != "":
            return f"`{value}`"
        case tuple() if value:
            return f"`{','.join(cast('tuple[str, ...]', value))}`"
        case frozenset() if value:
            return f"`{','.join(sorted(cast('frozenset[str]', value)))}`"
        case _:
            return ""


if __name__ == "__main__":
    sys.exit(main())
