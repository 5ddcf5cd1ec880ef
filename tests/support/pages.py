"""The fenced blocks of a page of the documentation, and what in its answers differs from run to run."""

import re
from dataclasses import dataclass

SHAPES = {
    r"\brun_[0-9a-f]{24}\b": "run_…",
    r"\bcall_[0-9a-f]{24}\b": "call_…",
    r"\bpassback \d+\.\d+\.\d+\S*": "passback …",
}
"""What differs, and how a page marks it."""


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
