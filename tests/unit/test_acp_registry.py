"""The entry for the registry of ACP agents keeps the registry's rules, and is of this version.

The rules are those of the registry's schema and of its contributors' guide.
"""

import json
import re
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET  # the file is the repository's own

import pytest

import passback
from passback.cli import main

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "acp"
ENTRY: dict[str, Any] = json.loads((FOLDER / "agent.json").read_text("utf-8"))
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

TEXTS = {"id", "name", "version", "description", "repository", "website", "license", "license_url"}
COLOURS = {"currentColor", "none", "inherit"}


def breaches(entry: dict[str, Any]) -> set[str]:
    """Return the places of an entry that break the registry's rules."""
    wrong = {"id", "name", "version", "description", "distribution"} - entry.keys()
    wrong |= entry.keys() - TEXTS - {"authors", "distribution"}
    wrong |= {name for name in TEXTS & entry.keys() if not is_text(entry[name])}
    if not re.fullmatch(r"[a-z][a-z0-9-]*", str(entry.get("id"))):
        wrong.add("id")
    if not re.fullmatch(r"\d+\.\d+\.\d+", str(entry.get("version"))):
        wrong.add("version")
    wrong |= {
        name
        for name in ("repository", "website", "license_url")
        if not str(entry.get(name, "https:")).startswith("https:")
    }
    if not all(map(is_text, entry.get("authors", ()))):
        wrong.add("authors")
    return wrong | distribution_breaches(entry.get("distribution"), str(entry.get("version")))


def is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def distribution_breaches(distribution: Any, version: str) -> set[str]:
    """Return the names of packages that break the rules; other programs than ours are one."""
    if not isinstance(distribution, dict) or distribution.keys() != {"uvx"}:
        return {"distribution"}
    package: dict[str, Any] = distribution["uvx"]
    wrong: set[str] = package.keys() - {"package", "args", "env"}
    name, equals, pinned = package.get("package", "").partition("==")
    if not (name and equals) or pinned != version:
        wrong.add("package")
    if not all(map(is_text, package.get("args", ()))):
        wrong.add("args")
    if not all(map(is_text, package.get("env", {}).values())):
        wrong.add("env")
    return wrong


def test_the_entry_keeps_the_rules_of_the_registry() -> None:
    assert breaches(ENTRY) == set()


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"id": "Passback"}, "id"),
        ({"id": "4passback"}, "id"),
        ({"version": "0.1"}, "version"),
        ({"version": "0.1.0rc1"}, "version"),
        ({"version": "0.2.0"}, "package"),
        ({"description": ""}, "description"),
        ({"icon": "icon.svg"}, "icon"),
        ({"repository": "passback"}, "repository"),
        ({"authors": [""]}, "authors"),
        ({"distribution": {}}, "distribution"),
        ({"distribution": {"uvx": {"package": "passback@latest"}}}, "package"),
        ({"distribution": {"uvx": {**ENTRY["distribution"]["uvx"], "args": [1]}}}, "args"),
        ({"distribution": {"uvx": {**ENTRY["distribution"]["uvx"], "shell": "sh"}}}, "shell"),
    ],
)
def test_another_entry_breaks_a_rule(change: dict[str, Any], place: str) -> None:
    assert place in breaches({**ENTRY, **change})


def test_the_entry_starts_the_agent_of_this_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert (ENTRY["version"], ENTRY["license"]) == (passback.__version__, PROJECT["license"])
    started = ENTRY["distribution"]["uvx"]
    found = re.match(r"(.+)\[(.+)\]==", started["package"])
    assert found is not None
    assert found[1] == PROJECT["name"] == ENTRY["id"]
    assert found[2] in PROJECT["optional-dependencies"]
    # uvx runs the program that has the package's name
    assert PROJECT["name"] in PROJECT["scripts"]
    with pytest.raises(SystemExit) as ended:
        main([*started["args"], "--help"])
    assert ended.value.code == 0
    assert "usage: passback acp" in capsys.readouterr().out


def test_the_icon_is_a_small_square_in_the_colour_of_the_editor() -> None:
    text = (FOLDER / "icon.svg").read_text("utf-8")
    assert "<!--" not in text
    drawn = ET.fromstring(text)
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    assert [drawn.get(name) for name in ("width", "height", "viewBox")] == ["16", "16", "0 0 16 16"]
    colours = {each.get(name) for each in drawn.iter() for name in ("fill", "stroke")} - {None}
    assert "currentColor" in colours
    assert colours <= COLOURS
    assert not any(each.get("style") or each.tag.endswith("style") for each in drawn.iter())
