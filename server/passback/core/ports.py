"""Protocols between the layers, and the values that pass through them.

Arguments are positional-only and values frozen. A method raises only what its docstring names.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Generic, Protocol, TypeVar, runtime_checkable

from passback.core.deltas import ModelDelta, ModelRequest
from passback.core.events import RunEvent
from passback.core.messages import (
    ConversationKey,
    MediaPart,
    ToolSpec,
)


@runtime_checkable
class ModelClient(Protocol):
    """A model that answers in a stream.

    The stream yields batches: the deltas of one read of the network, with neighbouring texts
    joined. Leaving the context closes the connection to the provider. One client serves many
    streams at once.
    """

    @property
    def name(self) -> str:
        """A name for people, such as `openai:gpt-5`; no secret in it."""
        ...

    def stream(
        self, request: ModelRequest, /
    ) -> AbstractAsyncContextManager[AsyncIterator[Sequence[ModelDelta]]]:
        """Ask the model. The request is encoded by the call and sent on entering the context.

        A context that is never entered needs no cleanup.

        Raises:
            ModelError: on entering or between batches; retries before the first byte are done
                inside.
        """
        ...

    def refuses(self, part: MediaPart, /) -> str | None:
        """Return why the model cannot take this media, in words for the client; None if it can."""
        ...

    async def check(self) -> Sequence[str] | None:
        """Check that the model can be used, as cheaply as the provider allows; return warnings.

        Raises:
            ModelError: it cannot be used; the message says why.
        """
        ...

    async def aclose(self) -> None: ...


class ArgumentCheck(Protocol):
    """Checks a call of a client tool before the client sees it."""

    async def __call__(self, spec: ToolSpec, arguments: str, key: ConversationKey, /) -> str | None:
        """Return why arguments do not fit the tool's schema, for the model; None if they do.

        `arguments` is a JSON object. The time is bounded whatever schema and arguments are, and the
        event loop is blocked for no more than about 10 ms. Checks that have to wait take turns by
        the owner of the conversation `key`.
        """
        ...


Frame_co = TypeVar("Frame_co", covariant=True)


class Encoder(Protocol, Generic[Frame_co]):
    """Encodes a run's events as frames of a wire. No I/O; one per stream; closes what it opened."""

    def feed(self, event: RunEvent, /) -> Sequence[Frame_co]: ...
