"""A model that plays a script, for tests and examples. It is deterministic and needs no network.

A script is a list of turns, one for each call of the model; a turn is a list of steps:

* a `str` is a piece of text, a delta is sent as it is, a list or tuple of deltas is one batch;
* an `anyio.Event` is waited for, so that a test can fix an order of events without a sleep;
* an exception is raised at that point.

`says` and `calls` write the usual turns. A turn without a `Finish` is an answer that broke off.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
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
    """Return a turn that is a text, one batch for each piece."""
    return [*pieces, Finish("stop")]


def calls(*tools: tuple[str, Mapping[str, JsonValue]]) -> list[Step]:
    """Return a turn that calls tools, each given as its name and its arguments."""
    steps: list[Step] = []
    for slot, (name, arguments) in enumerate(tools):
        # In two pieces, as services send calls.
        steps.append(ToolCallChunk(slot, provider_id=f"call_{slot}", name=name))
        steps.append(ToolCallChunk(slot, arguments=json.dumps(arguments)))
    return [*steps, Finish("tool_calls")]


class ScriptedModel:
    """A model that plays one turn of its script for each call, in the order of the calls.

    Args:
        script: the turns.
        per_message: play the script from its start for each message of the user, in any
            conversation and on any worker, so that an agent can be tried without a real model.
        name: the name that people are shown.
        media: True if it takes images, sounds and files.

    Attributes:
        requests: the request of each call that found a turn; with `per_message` only the last one.
        open_streams: the number of answers that are being read.
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
        turn_index = _count_answers(request.messages) if self._per_message else len(self.requests)
        if turn_index >= len(self._script):
            raise ModelError(
                f"the script has no turn {turn_index + 1}: it ends after {len(self._script)}"
            )
        if self._per_message:
            self.requests.clear()  # such a model may serve for days
        self.requests.append(request)
        self.open_streams += 1
        try:
            async with aclosing(_play_turn(self._script[turn_index])) as batches:
                yield batches
        finally:
            self.open_streams -= 1

    def refuses(self, part: MediaPart, /) -> str | None:
        return None if self._media else "a scripted model is shown text only"

    async def check(self) -> None:
        """Do nothing: a script can always be played."""

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""


def _count_answers(messages: Sequence[ModelMessage]) -> int:
    """Return the number of answers that the user's last message has got so far."""
    answers = 0
    for message in reversed(messages):
        if isinstance(message, UserMessage):
            content = message.content
            # The server's note on a refused answer is sent to models as a message of the user.
            if not (isinstance(content, str) and content.startswith(NOT_ACCEPTED)):
                break
        answers += isinstance(message, AssistantMessage)
    return answers


async def _play_turn(turn: Turn) -> AsyncGenerator[Sequence[ModelDelta]]:
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
    """Refuse the setting: a script is written in Python.

    Raises:
        ConfigurationError: always.
    """
    del name, base_url, api_key, timeout
    raise ConfigurationError("the scripted model takes a script: make a ScriptedModel in Python")
