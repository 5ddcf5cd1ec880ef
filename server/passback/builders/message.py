"""The builder of one message, which is made of parts."""

from typing import Final, Literal, TypeAlias, get_args
from uuid import uuid4

from pydantic import JsonValue

from passback.builders.content import FIELDS, ContentBuilder
from passback.builders.events import Event, Home, Misuse, filled_in, object_in, one_of

Role: TypeAlias = Literal["assistant", "user", "system", "tool"]
MessageEnd: TypeAlias = Literal["completed", "incomplete", "failed", "canceled", "rejected"]
TYPES: Final = (
    *("message", "reasoning", "heartbeat", "error", "a2ui_response", "a2ui_action"),
    *("function_call", "function_call_output", "plugin_call", "plugin_call_output"),
    *("component_call", "component_call_output", "mcp_call", "mcp_call_output"),
    *("mcp_list_tools", "mcp_approval_request", "mcp_approval_response"),
)
"""The types of messages that the protocol has."""
_NUMBER: Final = "sequence_number"


class MessageBuilder:
    """One message: `ResponseBuilder.create_message_builder` makes it, and `get_message_data` is then its first event."""

    def __init__(
        self,
        home: Home,
        role: Role,
        message_type: str,
        message_id: str | None,
        metadata: Event | None,
    ) -> None:
        self._home = home
        self._parts = list[JsonValue]()
        self._open: ContentBuilder | None = None
        self._over = ""  # why nothing more can come
        said = {} if metadata is None else object_in(metadata, "metadata")
        self._data: Event = {
            "object": "message",
            "status": "in_progress",
            "id": f"msg_{uuid4()}" if message_id is None else filled_in(message_id, "message_id"),
            "type": one_of(message_type, "message_type", TYPES),
            "role": one_of(role, "role", get_args(Role)),
            **({"metadata": said} if said else {}),
        }

    @property
    def message_id(self) -> str:
        return str(self._data["id"])

    def get_message_data(self) -> Event:
        """The first event, which announces the message."""
        self._refuse_over()
        if self._is_announced:
            raise Misuse("this message is announced: get_message_data() is its first event, once")
        self._data[_NUMBER] = self._home.number()
        return self._data

    def create_content_builder(
        self, content_type: str = "text", index: int | None = None
    ) -> ContentBuilder:
        """The next part. The one before has to be complete; an `index` has to be this one's place."""
        self._refuse_over()
        self._refuse_unannounced()
        self._refuse_open("before the next one begins")
        one_of(content_type, "the type of a part", FIELDS)
        if index is not None and index != len(self._parts):
            raise Misuse(
                f"the next part has the index {len(self._parts)}: parts come in their order"
            )
        self._open = ContentBuilder(self, self.message_id, content_type, len(self._parts))
        return self._open

    def add_content(self, content: Event) -> Event:
        """Add a part that was made elsewhere, whole; gives its event."""
        given = object_in(content, "a part")
        builder = self.create_content_builder(
            one_of(given.get("type"), "the type of a part", FIELDS)
        )
        fields = {key: given[key] for key in FIELDS[builder.type] if given.get(key) is not None}
        try:
            builder.fill(fields)
            return builder.complete()
        except Misuse:
            self._open = None  # nothing of it was sent
            raise

    def complete(self, status: MessageEnd = "completed", *, usage: Event | None = None) -> Event:
        """The message with all its parts; another `status` where it was cut."""
        self._refuse_over()
        self._refuse_unannounced()
        self._refuse_open("before its message ends")
        ended = self._ended(one_of(status, "the status of a message's end", get_args(MessageEnd)))
        used = {} if usage is None else object_in(usage, "usage")
        more = {"usage": used} if used else {}
        self._data = {**ended, **more, _NUMBER: self._home.number()}
        self._over = "this message has ended: create_message_builder() begins another"
        self._home.close(self._data)
        return self._data

    # ---------------------------------------------------------------- for the content's builder
    def number(self) -> int:
        """The next `sequence_number`."""
        return self._home.number()

    def close(self, part: Event, /) -> None:
        """A part has ended."""
        self._open = None
        self._parts.append(part)

    # ---------------------------------------------------------------- for the response's builder
    def cut(self, why: str, /) -> Event | None:
        """Nothing more can come. The message as it stands, and as no event told it; None: it was not announced."""
        self._over = why
        if self._open is not None:
            part = self._open.cut(why)
            self._open = None
            self._parts += [] if part is None else [part]
        if not self._is_announced:
            return None
        return {key: each for key, each in self._ended("incomplete").items() if key != _NUMBER}

    # ---------------------------------------------------------------- its state
    @property
    def _is_announced(self) -> bool:
        return _NUMBER in self._data

    def _ended(self, status: str) -> Event:
        return {**self._data, "status": status, "content": self._parts}

    def _refuse_over(self) -> None:
        if self._over:
            raise Misuse(self._over)

    def _refuse_unannounced(self) -> None:
        if not self._is_announced:
            raise Misuse("this message is not announced: send the event get_message_data() first")

    def _refuse_open(self, when: str) -> None:
        if self._open is not None:
            raise Misuse(f"a part is still open: complete() it {when}")
