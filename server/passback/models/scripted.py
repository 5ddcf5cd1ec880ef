"""A model that plays a script: for tests and examples, without a network and without surprises.

A script is a list of turns, one for each call of the model; a turn is a list of steps:

* a `str` is a piece of text, a delta is sent as it is, a list or tuple of deltas is one batch;
* an `anyio.Event` is waited for, which proves an interleaving without a sleep;
* an exception is raised there.

`says` and `calls` write the usual turns. A turn without a `Finish` is an answer that broke off.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from itertools import takewhile
from typing import NoReturn, TypeAlias

import anyio
from pydantic import JsonValue

from passback.core.deltas import Finish, ModelDelta, ModelRequest, TextChunk, ToolCallChunk
from passback.core.errors import ConfigurationError, ModelError
from passback.core.messages import AssistantMessage, MediaPart, ModelMessage, UserMessage
from passback.core.transcript import NOT_ACCEPTED

Step: TypeAlias = str | ModelDelta | Sequence[ModelDelta] | anyio.Event | Exception
Turn: TypeAlias = Sequence[Step]


def says(*pieces: str) -> list[Step]:
    """A turn that is a text, one batch for each piece."""
    return [*pieces, Finish("stop")]


def calls(*tools: tuple[str, Mapping[str, JsonValue]]) -> list[Step]:
    """A turn that calls tools, each given as its name and its arguments."""
    steps: list[Step] = []
    for slot, (name, arguments) in enumerate(tools):
        steps.append(ToolCallChunk(slot, provider_id=f"call_{slot}", name=name))
        steps.append(ToolCallChunk(slot, arguments=json.dumps(arguments)))
    return [*steps, Finish("tool_calls")]


class ScriptedModel:
    """Plays one turn of its script for each call, in the order in which the calls come.

    Args:
        script: the turns.
        per_message: each message of the user is answered by the script from its start, in whatever conversation, on
            whatever worker, as often as it comes: so an agent can be tried without a real model.
        name: what people are shown.
        media: whether it may be shown images, sounds and files.

    Attributes:
        requests: what was asked, one for each call that found a turn; with `per_message` only the last of them.
        open_streams: how many answers are being read now.
    """

    def __init__(
        self,
        script: Sequence[Turn],
        /,
        *,
        name: str = "scripted",
        media: bool = False,
        per_message: bool = False,
    ) -> None:
        self._script = tuple(script)
        self._per_message = per_message
        self._media = media
        self._name = name
        self.requests: list[ModelRequest] = []
        self.open_streams = 0

    @property
    def name(self) -> str:
        return self._name

    @asynccontextmanager
    async def stream(
        self, request: ModelRequest, /
    ) -> AsyncGenerator[AsyncIterator[Sequence[ModelDelta]]]:
        played = _answers_in(request.messages) if self._per_message else len(self.requests)
        if played >= len(self._script):
            raise ModelError(
                f"the script has no turn {played + 1}: it ends after {len(self._script)}"
            )
        if self._per_message:
            self.requests.clear()
        self.requests.append(request)
        self.open_streams += 1
        try:
            async with aclosing(_play(self._script[played])) as batches:
                yield batches
        finally:
            self.open_streams -= 1

    def refuses(self, part: MediaPart, /) -> str | None:
        return None if self._media else "a scripted model is shown text only"

    async def check(self) -> None:
        """A script can always be played."""

    async def aclose(self) -> None:
        """Nothing is held."""


def _answers_in(messages: Sequence[ModelMessage]) -> int:
    """Those that the user's last message has got so far."""
    since = takewhile(lambda each: not _is_the_users(each), reversed(messages))
    return sum(isinstance(each, AssistantMessage) for each in since)


def _is_the_users(message: ModelMessage) -> bool:
    """Not what the server says of an answer, which models are shown as the user's."""
    if not isinstance(message, UserMessage):
        return False
    return not (isinstance(message.content, str) and message.content.startswith(NOT_ACCEPTED))


async def _play(turn: Turn) -> AsyncGenerator[Sequence[ModelDelta]]:
    for step in turn:
        if isinstance(step, anyio.Event):
            await step.wait()
        elif isinstance(step, Exception):
            raise step
        elif isinstance(step, str):
            yield (TextChunk(step),)
        elif isinstance(step, ModelDelta):
            yield (step,)
        else:
            yield step


def create(
    name: str,
    /,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    timeout: float | None = None,
) -> NoReturn:
    """Refuse: a script cannot be named in a setting, it is written in Python.

    Raises:
        ConfigurationError: always.
    """
    del name, base_url, api_key, timeout
    raise ConfigurationError("the scripted model takes a script: make a ScriptedModel in Python")
