"""The builder of one message, which is made of parts."""

from typing import Literal, TypeAlias
from uuid import uuid4

from pydantic import JsonValue

from passback.builders.content import FIELDS, ContentBuilder
from passback.builders.events import Event, Home, Misuse

Role: TypeAlias = Literal["assistant", "user", "system", "tool"]
MessageEnd: TypeAlias = Literal["completed", "incomplete", "failed", "canceled", "rejected"]


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
        self._ended = False
        self._data: Event = {
            "object": "message",
            "status": "in_progress",
            "id": message_id or f"msg_{uuid4()}",
            "type": message_type,
            "role": role,
            **({"metadata": metadata} if metadata else {}),
            "sequence_number": home.number(),
        }

    @property
    def message_id(self) -> str:
        return str(self._data["id"])

    def create_content_builder(
        self, content_type: str = "text", index: int | None = None
    ) -> ContentBuilder:
        """The next part. The one before has to be complete; an `index` has to be this one's place."""
        self._refuse_ended()
        self._refuse_open("before the next one begins")
        if content_type not in FIELDS:
            raise Misuse(f"there is no content of type {content_type!r}: {', '.join(FIELDS)}")
        if index not in {None, len(self._parts)}:
            raise Misuse(
                f"the next part has the index {len(self._parts)}: parts come in their order"
            )
        self._open = ContentBuilder(self, self.message_id, content_type, len(self._parts))
        return self._open

    def add_content(self, content: Event) -> Event:
        """Add a part that was made elsewhere, whole; gives its event."""
        builder = self.create_content_builder(str(content.get("type")))
        builder.put(
            {key: content[key] for key in FIELDS[builder.type] if content.get(key) is not None}
        )
        return builder.complete()

    def get_message_data(self) -> Event:
        """The message as it stands, with the number of its last event."""
        return {**self._data, "content": list(self._parts)} if self._parts else self._data

    def complete(self, status: MessageEnd = "completed", *, usage: Event | None = None) -> Event:
        """The message with all its parts; another `status` where it was cut."""
        self._refuse_ended()
        self._refuse_open("before its message ends")
        self._ended = True
        self._data = {
            **self._data,
            "status": status,
            "content": self._parts,
            **({"usage": usage} if usage else {}),
            "sequence_number": self._home.number(),
        }
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

    def _refuse_ended(self) -> None:
        if self._ended:
            raise Misuse("this message has ended: create_message_builder() begins another")

    def _refuse_open(self, when: str) -> None:
        if self._open is not None:
            raise Misuse(f"a part is still open: complete() it {when}")
