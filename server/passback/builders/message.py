"""The builder of one message, which is made of parts."""

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
"""The types of parts that come in deltas; each has one field, of the same name."""


class MessageType(StrEnum):
    """The types of messages that the protocol has."""

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
        """Return all types, as plain texts."""
        return [each.value for each in cls]


class MessageBuilder:
    """One message: `ResponseBuilder.create_message_builder` makes it.

    Its first event announces it. Send what `get_message_data` gives before the first part's event, or let the response's
    `on_event` send all: a message that nobody has announced announces itself with its first content.
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
        self._end_reason = ""  # why nothing more can come
        self._is_first_event_given = False
        said = {} if metadata is None else copy_object(metadata, "metadata")
        self._data: Event = {
            "object": "message",
            "status": "in_progress",
            "id": f"msg_{uuid4()}"
            if message_id is None
            else require_filled_text(message_id, "message_id"),
            "type": require_one_of(message_type, "message_type", MessageType.all_values()),
            "role": require_one_of(role, "role", get_args(Role)),
            **({"metadata": said} if said else {}),
        }

    @property
    def message_id(self) -> str:
        return str(self._data["id"])

    def get_message_data(self) -> Event:
        """Return the first event, which announces the message; also when it has announced itself. Once: it is sent once."""
        self._refuse_ended()
        if self._is_first_event_given:
            raise Misuse("get_message_data() has given the message's first event: send it once")
        self._is_first_event_given = True
        self._announce_once()
        return self._data

    def create_content_builder(
        self, content_type: str = "text", index: int | None = None
    ) -> ContentBuilder:
        """The next part. The one before has to be complete; an `index` has to be this one's place."""
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
        """Add a part that was made elsewhere, whole; gives its event."""
        self._refuse_ended()
        self._refuse_open_part("before the next one begins")
        given = copy_object(content, "a part")
        part = self._next_part(require_one_of(given.get("type"), "the type of a part", FIELDS))
        part.fill_fields(
            {key: given[key] for key in FIELDS[part.type] if given.get(key) is not None}
        )
        self._announce_once()
        return part.complete()

    def add_delta_content(self, content: Event) -> Event:
        """Append a piece of a text or of data, `{"type", "text" or "data", "index"?}`; gives its event.

        With an `index` it goes to the open part, which has to have it; without one it begins the next part.
        """
        given = copy_object(content, "a delta")
        content_type = require_one_of(given.get("type"), "the type of a delta", _DELTA_TYPES)
        piece, index = given.get(content_type), given.get("index")
        check = require_text if content_type == "text" else copy_object
        check(piece, f"the {content_type} of a delta")  # before a part is begun for it
        part = (
            self.create_content_builder(content_type)
            if index is None
            else self._require_open_part(index)
        )
        if isinstance(piece, dict):
            return part.add_data_delta(piece)
        return part.add_text_delta(str(piece))

    def content_completed(self, content_index: int) -> Event:
        """Complete the open part, which has to have this index; gives its event, the whole part."""
        return self._require_open_part(content_index).complete()

    def complete(self, status: MessageEnd = "completed", *, usage: Event | None = None) -> Event:
        """The message with all its parts; another `status` where it was cut."""
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
        """Draw the next `sequence_number`."""
        return self._parent.next_number()

    def emit(self, event: Event, /) -> Event:
        """Number an event and tell it; returns it."""
        return self._parent.emit(event)

    def close_child(self, part: Event, /) -> None:
        """A part has ended."""
        self._open = None
        self._parts.append(part)

    def stop_early(self, why: str, /) -> Event | None:
        """Nothing more can come. The message as it stands, and as no event told it; None: it was not announced."""
        self._end_reason = why
        if self._open is not None:
            part = self._open.stop_early(why)
            self._open = None
            self._parts += [] if part is None else [part]
        if not self._is_announced:
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
