"""What a module does when it is imported is told in one line, with the place in the person's own file."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from passback.core.errors import ConfigurationError
from passback.loading import load_agent


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("theirs", "helper"):
        sys.modules.pop(name, None)


HELPER = "def work(how):\n    return how()\n"


@pytest.mark.parametrize(
    ("source", "told", "place"),
    [
        ("import sys\nsys.exit(0)\n", "SystemExit: 0", "theirs.py, line 2"),
        ("raise SystemExit\n", "SystemExit", "theirs.py, line 1"),
        ("\nraise RuntimeError('two\\nlines')\n", "RuntimeError: two lines", "theirs.py, line 2"),
        ("import json\n\njson.loads('{')\n", "JSONDecodeError: Expecting", "theirs.py, line 3"),
        ("import nosuch\n", "No module named 'nosuch'", "theirs.py, line 1"),
        (
            "import passback\n\nagent = passback.Agent(\n    max_turns=0,\n)\n",
            "Agent: max_turns takes a whole number from 1 on, not 0",
            "theirs.py, line 3",
        ),
        ("from helper import work\n\nwork(5)\n", "TypeError: 'int' object", "helper.py, line 2"),
        ("def __getattr__(name):\n    return 1 / 0\n", "ZeroDivisionError", "theirs.py, line 2"),
    ],
)
def test_whatever_is_raised_is_told(source: str, told: str, place: str, folder: Path) -> None:
    (folder / "theirs.py").write_text(source)
    (folder / "helper.py").write_text(HELPER)
    with pytest.raises(ConfigurationError) as raised:
        load_agent("theirs:agent")
    assert raised.value.message.startswith(f"'theirs:agent' cannot be loaded: {told}")
    assert raised.value.message.endswith(f" ({folder}/{place})")
    assert "\n" not in raised.value.message


def test_an_agent_without_a_name_gets_that_of_its_target(folder: Path) -> None:
    (folder / "theirs.py").write_text(
        "from passback import Agent\none = Agent()\ntwo = Agent(name='second')\n"
    )
    assert [load_agent("theirs:one").name, load_agent("theirs:two").name] == ["one", "second"]
