"""One client of the chat socket, by whichever transport: its events in their order."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias

from pydantic import JsonValue

from passback.core.errors import (
    ConversationBusy,
    InvalidRequest,
    PassbackError,
    Unauthenticated,
)
from passback.core.messages import ConversationKey, OwnerId, RunRef
from passback.core.posts import Parked
from passback.http.requests import check_conversation_id
from passback.http.wires import Services
from passback.wire.chat.feeds import Feeds, Subscription
from passback.wire.chat.outgoing import Client, refusal, refusal_data
from passback.wire.chat.posted import (
    ChatSend,
    OfSession,
    Subscribe,
    read_payload,
    read_send,
    session_key,
)

logger = logging.getLogger(__name__)

SUBSCRIPTIONS: Final = 100  # sessions that one client may follow at once
_STOP_ATTEMPTS = 5  # of a stop, while runs begin and end
_SHOWN_CHARACTERS = 64  # of an event's name, in an error

Ack: TypeAlias = dict[str, Any]
_OK: Final[Mapping[str, Any]] = {"status": "ok"}


class Connection:
    """Handles the events of one client, which its transport gives one after the other.

    Args:
        services: the runs and the limits.
        feeds: the shared readers.
        client: gets what is sent.
    """

    def __init__(self, services: Services, feeds: Feeds, client: Client, /) -> None:
        self._services = services
        self._runs = services.runs
        self._feeds = feeds
        self._client = client
        self._subscriptions: dict[ConversationKey, Subscription] = {}
        self._handlers: Mapping[str, Callable[[OwnerId, JsonValue], Awaitable[Ack]]] = {
            "session:subscribe": self._subscribe,
            "session:unsubscribe": self._unsubscribe,
            "chat:send": self._send,
            "chat:stop": self._stop,
            "chat:compact": self._compact,
        }

    async def handle(
        self, owner: OwnerId | None, name: object, data: JsonValue, /, *, wants_ack: bool
    ) -> Ack:
        """Handle an event of the client, and return its ack.

        An event that is refused changes nothing. The error is the ack, if the client wants one,
        and an event `system:error` otherwise.
        """
        try:
            if owner is None:
                raise Unauthenticated("present a key first: the event auth with a token")
            return await self._handler_of(name)(owner, data)
        except PassbackError as error:
            failure = error
        except Exception:  # the event's boundary: the log gets the error, the client does not
            logger.exception("an event of a chat socket failed")
            failure = PassbackError("the server met an unexpected error")
        named = _named_session(data)
        if not wants_ack:
            self._client.send(refusal(failure, session_id=named))
        return {"status": "error", **refusal_data(failure, session_id=named)}

    def close(self) -> None:
        """End all subscriptions: the client has gone."""
        for one in self._subscriptions.values():
            self._feeds.leave(one)
        self._subscriptions.clear()

    def _handler_of(self, name: object) -> Callable[[OwnerId, JsonValue], Awaitable[Ack]]:
        found = self._handlers.get(name) if isinstance(name, str) else None
        if found is None:
            shown = repr(name[:_SHOWN_CHARACTERS]) if isinstance(name, str) else "which is no text"
            raise InvalidRequest(
                f"event: there is no event {shown}; the events are {', '.join(self._handlers)}"
            )
        return found

    async def _subscribe(self, owner: OwnerId, data: JsonValue) -> Ack:
        sent = read_payload(Subscribe, data)
        key = session_key(owner, sent)
        one = self._subscriptions.get(key)
        if one is None:
            if len(self._subscriptions) >= SUBSCRIPTIONS:
                raise InvalidRequest(
                    f"session_id: a client follows {SUBSCRIPTIONS} sessions; unsubscribe one"
                )
            one = Subscription(self._client, key)
        else:
            self._feeds.leave(one)
        one.is_raw, number = sent.event_format == "raw", sent.after_sequence or 0
        try:
            if number or sent.resume:
                await self._feeds.resume(one, number)
            else:
                await self._feeds.join(one)
        except BaseException:
            self._feeds.leave(one)
            self._subscriptions.pop(key, None)
            raise
        one.count += 1
        self._subscriptions[key] = one
        return dict(_OK)

    async def _unsubscribe(self, owner: OwnerId, data: JsonValue) -> Ack:
        key = session_key(owner, read_payload(OfSession, data))
        one = self._subscriptions.get(key)
        if one is not None:
            one.count -= 1
            if one.count == 0:
                del self._subscriptions[key]
                self._feeds.leave(one)
        return dict(_OK)

    async def _send(self, owner: OwnerId, data: JsonValue) -> Ack:
        sent = read_payload(ChatSend, data)
        key = session_key(owner, sent)
        if key not in self._subscriptions:  # which is of a conversation that exists
            await self._runs.status(key)
        started = await self._runs.start(await read_send(self._services, key, sent))
        if isinstance(started, Parked):
            return {**_OK, "pending_tool_call_ids": [owed.id for owed in started.owed]}
        return {**_OK, "chat_run_id": started.run_id}

    async def _stop(self, owner: OwnerId, data: JsonValue) -> Ack:
        """Stop what goes on and what waits; without either, go on without what is owed."""
        key = session_key(owner, read_payload(OfSession, data))
        for _ in range(_STOP_ATTEMPTS):
            status = await self._runs.status(key)
            going_on = [status.run_id] if status.running and status.run_id else []
            runs = [*reversed(status.queued), *going_on]
            if not runs and not status.owed:
                return dict(_OK)
            if runs:
                stopped = [await self._runs.cancel(RunRef(key, run_id)) for run_id in runs]
                if all(stopped):
                    return dict(_OK)
                continue
            try:
                await self._runs.close_calls(key)
            except ConversationBusy:
                continue
            return dict(_OK)
        raise ConversationBusy("other chats begin all the time", retry_after=1)

    async def _compact(self, owner: OwnerId, data: JsonValue) -> Ack:
        key = session_key(owner, read_payload(OfSession, data))
        run = await self._runs.compact(key)
        return {**_OK, "chat_run_id": run.run_id}


def _named_session(data: JsonValue) -> str | None:
    """Return the session that an event names; None if it names none that can be one."""
    session_id = data.get("session_id") if isinstance(data, dict) else None
    if not isinstance(session_id, str):
        return None
    with suppress(InvalidRequest):
        return check_conversation_id(session_id)
    return None
