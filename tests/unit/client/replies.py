"""Replies of a scripted server, and answers made of events, for several files of this folder."""

from typing import Any

import httpx
from tests.support.python_client import DONE, PAINT, frame, stream

from passback_client import Answer, Limits


def says(text: str, run: str = "next") -> httpx.Response:
    """Return the stream of a run with one text."""
    return stream(frame(f"{run}.1-2", type="text", content=text), DONE, run=run)


def hello() -> httpx.Response:
    return says("Hello", "run")


def paints(*names: str) -> list[dict[str, str]]:
    """Return owed calls of the tool `paint` with these ids."""
    return [PAINT | {"id": name} for name in names]


def answer_of(*events: Any, limits: Limits | None = None) -> Answer:
    answer = Answer(limits)
    for event in events:
        answer.feed(event)
    return answer
