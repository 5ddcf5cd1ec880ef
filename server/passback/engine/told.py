"""What an agent is told in one run only: text that a function of its author gives."""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from passback.core.messages import RunRef
from passback.core.prompts import RunContext
from passback.core.text import mended
from passback.engine.calling import CallBroken, boundary, called
from passback.engine.turn import Turn

logger = logging.getLogger(__name__)

Told: TypeAlias = Callable[[RunRef], str | Awaitable[str]]

SECONDS = 30.0
"""How long it may take."""

TEXT_BYTES = 64 * 1024

MISSING = "[The application could not look up what belongs here: it is not known in this run.]"
"""What the model is told in place of text that there is none of."""


def run_context(
    function: Told, /, *, shown: Callable[[str], str] = str, seconds: float = SECONDS
) -> RunContext:
    """The function, plain (it runs in a thread) or async, as the engine asks it; `shown` says how its text is shown.

    It never fails: where the function raises, takes longer than `seconds` or gives no text, the model is told that
    something is missing. Of a longer text it is told the first `TEXT_BYTES`.
    """

    async def told(run: RunRef) -> str:
        ids = {"run_id": run.run_id}
        try:
            with boundary("context", ids, seconds):
                return shown(_bounded(await called(function, run), run))
        except CallBroken:
            return shown(MISSING)

    return told


def _bounded(text: object, run: RunRef) -> str:
    """Raises TypeError for what is no text."""
    if not isinstance(text, str):
        raise TypeError(f"the context of an agent has to be a text, not {type(text).__name__}")
    encoded = mended(text).encode()
    if len(encoded) <= TEXT_BYTES:
        return encoded.decode()
    extra = {"action": "context_cut", "run_id": run.run_id}
    logger.warning("context cut: %s bytes, %s are told", len(encoded), TEXT_BYTES, extra=extra)
    left = len(encoded) - TEXT_BYTES
    return f"{encoded[:TEXT_BYTES].decode(errors='ignore')}\n[Cut here: {left} bytes more.]"


class ToldOnce:
    """What an agent is told in one run, asked for when its model is first called; its forks are told the same."""

    __slots__ = ("_ask", "_asking", "_run", "_text")

    def __init__(self, ask: RunContext | None, run: RunRef) -> None:
        self._ask = ask or _nothing
        self._run = run
        self._text: str | None = None
        self._asking = Turn()

    async def __call__(self) -> str:
        # forks that go on after a take-over may all ask first
        async with self._asking:
            if self._text is None:
                self._text = await self._ask(self._run)
            return self._text


async def _nothing(_run: RunRef) -> str:
    return ""
