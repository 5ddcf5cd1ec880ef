"""Fenced blocks of the documentation, and the parts of their answers that vary between runs."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.support.programs import shell

ADDRESS = "http://127.0.0.1:8000"
"""The address in a page's commands."""

SHAPES = {
    r"\brun_[0-9A-Za-z]{34}": "run_…",
    r"\bcall_[0-9A-Za-z]{34}": "call_…",
    r"\bconv_[0-9a-f]{24}\b": "conv_…",
    r"\bpassback \d+\.\d+\.\d+\S*": "passback …",
}
"""Parts that vary, and their placeholders on a page."""


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    text: str

    @property
    def is_request(self) -> bool:
        return self.language == "sh" and self.text.startswith("curl ")


def blocks_of(page: str) -> list[Block]:
    found = re.findall(r"^```(\w+)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return [Block(language, content) for language, content in found]


def marked(text: str) -> str:
    """A real output as a page would print it."""
    for shape, mark in SHAPES.items():
        text = re.sub(shape, mark, text)
    return text


async def check_commands(blocks: Sequence[Block], url: str, folder: Path) -> int:
    """Run a page's commands in order; each prints what the page shows. Return their number."""
    commands = [block.text for block in blocks if block.language == "sh"]
    expected = [
        below.text if below and below.language == "text" else ""
        for block, below in pairwise([*blocks, None])
        if block and block.language == "sh"
    ]
    script = "".join(f"{command}printf '\\0'\n" for command in commands)
    output = await shell(script.replace(ADDRESS, url), folder)
    assert [marked(text) for text in output.split("\0")] == [*expected, ""]
    return len(commands)
