"""docs/how-to/permissions.md, executed."""

import runpy
from pathlib import Path

import pytest
from tests.support.documents import blocks_of, check_commands
from tests.support.server import running_server

from passback import Permission
from passback.core.messages import (
    CallId,
    ConversationId,
    ConversationKey,
    OwnerId,
    RunId,
    RunRef,
    ToolCall,
)

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "permissions.md"
BLOCKS = blocks_of(PAGE.read_text("utf-8"))
AGENT, RULE = (block.text for block in BLOCKS if block.language == "python")


async def test_the_page_prints_what_it_shows(tmp_path: Path) -> None:
    (tmp_path / "my_files.py").write_text(AGENT)
    async with running_server("my_files:agent", cwd=str(tmp_path)) as server:
        assert await check_commands(BLOCKS, server.url, tmp_path) == 3


def test_the_function_of_the_page_judges(tmp_path: Path) -> None:
    module = tmp_path / "my_rule.py"
    module.write_text(f"{AGENT}\n\n{RULE}")
    judge = runpy.run_path(str(module))["by_folder"]
    run = RunRef(ConversationKey(OwnerId("o"), ConversationId("c")), RunId("r"))
    private, public = (
        ToolCall(CallId("c"), "read_file", f'{{"path": "{path}"}}') for path in ("/private/a", "/a")
    )
    assert judge(private, run) == Permission("deny", "That folder is private.")
    assert judge(public, run) is None


def test_the_page_is_linked() -> None:
    assert "(docs/how-to/permissions.md)" in (PAGE.parents[2] / "README.md").read_text("utf-8")
