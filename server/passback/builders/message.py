"""The builder of one message, which has parts."""

from enum import StrEnum
from typing import Final, Literal, TypeAlias, get_args
from uuid import uuid4

from pydantic import JsonValue

from passback.builders.content import FIELDS, ContentBuilder
from passback.builders.events import (
    Event,
    Misuse,
    ParentBuilder,
    copy_object,
    require_filled_text,
    require_one_of,
    require_text,
)

Role: TypeAlias = Literal["assistant", "user", "system", "tool"]
MessageEnd: TypeAlias = Literal["completed", "incomplete", "failed", "canceled", "rejected"]
_NUMBER_KEY: Final = "sequence_number"
_DELTA_TYPES: Final = ("text", "data")
"""Types of parts that come in deltas. Each has one field, named like the type."""


class MessageType(StrEnum):
    """Types of messages in the protocol."""

    MESSAGE = "message"
    FUNCTION_CALL = "function_call"
    FUNCTION_CALL_OUTPUT = "function_call_output"
    PLUGIN_CALL = "plugin_call"
    PLUGIN_CALL_OUTPUT = "plugin_call_output"
    COMPONENT_CALL = "component_call"
    COMPONENT_CALL_OUTPUT = "component_call_output"
    MCP_LIST_TOOLS = "mcp_list_tools"
    MCP_APPROVAL_REQUEST = "mcp_approval_request"
    MCP_APPROVAL_RESPONSE = "mcp_approval_response"
    MCP_TOOL_CALL = "mcp_call"
    MCP_TOOL_CALL_OUTPUT = "mcp_call_output"
    REASONING = "reasoning"
    HEARTBEAT = "heartbeat"
    ERROR = "error"
    A2UI_RESPONSE = "a2ui_response"
    A2UI_ACTION = "a2ui_action"

    @classmethod
    def all_values(cls) -> list[str]:
        """Return all types as plain texts."""
        return [each.value for each in cls]


class MessageBuilder:
    """Builder of one message. `ResponseBuilder.create_message_builder` makes it.

    The first event announces the message. Either send the event that `get_message_data` returns
    before the first event of a part, or let the response's `on_event` send all events: it gets the
    first event with the first content at the latest.
    """

    def __init__(
        self,
        parent: ParentBuilder,
        role: Role,
        message_type: str,
        message_id: str | None,
        metadata: Event | None,
    ) -> None:
        self._parent = parent
        self._parts = list[JsonValue]()
        self._open: ContentBuilder | None = None
        self._end_reason = ""  # error text of every step once the message has ended
        self._is_first_event_given = False
        checked = {} if metadata is None else copy_object(metadata, "metadata")
        self._data: Event = {
            "object": "message",
            "status": "in_progress",
            "id": f"msg_{uuid4()}"
            if message_id is None
            else require_filled_text(message_id, "message_id"),
            "type": require_one_of(message_type, "message_type", MessageType.all_values()),
            "role": require_one_of(role, "role", get_args(Role)),
            **({"metadata": checked} if checked else {}),
        }

    @property
    def message_id(self) -> str:
        return str(self._data["id"])

    def get_message_data(self) -> Event:
        """Return the first event, which announces the message.

        It may be called once, because the event is sent once, also after `on_event` has got it.
        """
        self._refuse_ended()
        if self._is_first_event_given:
            raise Misuse("get_message_data() has given the message's first event: send it once")
        self._is_first_event_given = True
        self._announce_once()
        return self._data

    def create_content_builder(
        self, content_type: str = "text", index: int | None = None
    ) -> ContentBuilder:
        """Begin the next part and return its builder.

        The part before must be complete. `index`, if given, must be that of the new part.
        """
        self._refuse_ended()
        self._refuse_open_part("before the next one begins")
        require_one_of(content_type, "the type of a part", FIELDS)
        if index is not None and index != len(self._parts):
            raise Misuse(
                f"the next part has the index {len(self._parts)}: parts come in their order"
            )
        self._announce_once()
        self._open = self._next_part(content_type)
        return self._open

    def add_content(self, content: Event) -> Event:
        """Add a whole part and return its event."""
        self._refuse_ended()
        self._refuse_open_part("before the next one begins")
        given = copy_object(content, "a part")
        part = self._next_part(require_one_of(given.get("type"), "the type of a part", FIELDS))
        # a field that is null counts as missing
        part.fill_fields(
            {key: given[key] for key in FIELDS[part.type] if given.get(key) is not None}
        )
        self._announce_once()  # last: an illegal part must not announce the message
        return part.complete()

    def add_delta_content(self, content: Event) -> Event:
        """Append a delta of text or data and return its event.

        The delta is `{"type", "text" or "data", "index"?}`. With an `index` it goes to the open
        part, which must have that index; without one it begins the next part.
        """
        given = copy_object(content, "a delta")
        content_type = require_one_of(given.get("type"), "the type of a delta", _DELTA_TYPES)
        piece, index = given.get(content_type), given.get("index")
        check = require_text if content_type == "text" else copy_object
        check(
            piece, f"the {content_type} of a delta"
        )  # first: an illegal delta must not begin a part
        part = (
            self.create_content_builder(content_type)
            if index is None
            else self._require_open_part(index)
        )
        if isinstance(piece, dict):
            return part.add_data_delta(piece)
        return part.add_text_delta(str(piece))

    def content_completed(self, content_index: int) -> Event:
        """Complete the open part, which must have this index, and return its last event."""
        return self._require_open_part(content_index).complete()

    def complete(self, status: MessageEnd = "completed", *, usage: Event | None = None) -> Event:
        """End the message and return its last event, which has all its parts.

        Args:
            status: `completed`, or how the message ended early.
            usage: tokens that it took.
        """
        self._refuse_ended()
        self._refuse_open_part("before its message ends")
        require_one_of(status, "the status of a message's end", get_args(MessageEnd))
        used = {} if usage is None else copy_object(usage, "usage")
        more = {"usage": used} if used else {}
        self._announce_once()
        self._data = self._parent.emit({**self._end_event(status), **more})
        self._end_reason = "this message has ended: create_message_builder() begins another"
        self._parent.close_child(self._data)
        return self._data

    def next_number(self) -> int:
        """Return the next `sequence_number`; for the part's builder."""
        return self._parent.next_number()

    def emit(self, event: Event, /) -> Event:
        """Number an event, call `on_event`, and return the event; for the part's builder."""
        return self._parent.emit(event)

    def close_child(self, part: Event, /) -> None:
        """Add a part that has ended; for the part's builder."""
        self._open = None
        self._parts.append(part)

    def stop_early(self, why: str, /) -> Event | None:
        """End the message without an event, before it is complete; for the response's builder.

        Args:
            why: error text of every later step.

        Returns:
            The message as it stands; None if it was not announced.
        """
        self._end_reason = why
        if self._open is not None:
            part = self._open.stop_early(why)
            self._open = None
            self._parts += [] if part is None else [part]
        if not self._is_announced:  # no client knows of it: it is not in the output either
            return None
        return {
            key: each for key, each in self._end_event("incomplete").items() if key != _NUMBER_KEY
        }

    @property
    def _is_announced(self) -> bool:
        return _NUMBER_KEY in self._data

    def _announce_once(self) -> None:
        if not self._is_announced:
            self._parent.emit(self._data)

    def _next_part(self, content_type: str) -> ContentBuilder:
        return ContentBuilder(self, self.message_id, content_type, len(self._parts))

    def _require_open_part(self, index: JsonValue) -> ContentBuilder:
        self._refuse_ended()
        if self._open is None or index != len(self._parts):
            raise Misuse(f"no part with the index {index!r} is open"[:400])
        return self._open

    def _end_event(self, status: str) -> Event:
        return {**self._data, "status": status, "content": self._parts}

    def _refuse_ended(self) -> None:
        if self._end_reason:
            raise Misuse(self._end_reason)

    def _refuse_open_part(self, when: str) -> None:
        if self._open is not None:
            raise Misuse(f"a part is still open: complete() it {when}")
