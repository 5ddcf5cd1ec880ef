"""The builder of one part of a message."""

from collections.abc import Mapping
from io import StringIO
from json.encoder import encode_basestring_ascii as quoted
from typing import Final, TypeGuard

from pydantic import JsonValue

from passback.builders.events import (
    Event,
    Misuse,
    ParentBuilder,
    copy_object,
    copy_value,
    encode,
    require_filled_text,
    require_text,
)

FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "text": frozenset({"text"}),
    "refusal": frozenset({"refusal"}),
    "image": frozenset({"image_url"}),
    "data": frozenset({"data"}),
    "audio": frozenset({"data", "format"}),
    "file": frozenset({"file_url", "file_id", "filename", "file_data"}),
    "video": frozenset({"video_url"}),
}
"""Fields of each type of content."""
_TEXT_TYPES: Final = frozenset({"text", "refusal"})
_TEXT_LABEL: Final = "a text"  # name of the value in errors


class ContentBuilder:
    """Builder of one part of a message. `MessageBuilder.create_content_builder` makes it.

    A setter replaces the content of the part; a delta is appended to it.
    """

    def __init__(
        self, parent: ParentBuilder, message_id: str, content_type: str, index: int
    ) -> None:
        self.type = content_type
        self._parent = parent
        self._message_id = message_id
        self._index = index
        self._fields: Event | None = None
        self._text = StringIO()
        self._end_reason = ""  # error text of every step once the part has ended
        self._is_complete = False
        self._has_begun = False
        # the same for every text delta: encoded once
        head = encode(self._make_event({}, "in_progress", delta=True))
        self._delta_head = f'{head.removesuffix("}")},"text":'

    def add_text_delta(self, text: str | None) -> Event:
        """Append to the text and return the event. None counts as an empty text."""
        piece = self._append_text("" if text is None else text)
        return self._parent.emit(self._make_event({"text": piece}, "in_progress", delta=True))

    def encode_text_delta(self, text: str) -> str:
        """Append to the text and return the event as JSON, as `encode(add_text_delta(text))` does.

        For servers that send many: no object is made, and so `on_event` is not called.
        """
        piece = quoted(self._append_text(text))
        return f'{self._delta_head}{piece},"sequence_number":{self._parent.next_number()}}}'

    def add_delta(self, text: str | None) -> Event:
        """Append to the text, as `add_text_delta` does."""
        return self.add_text_delta(text)

    def set_text(self, text: str) -> Event:
        self._require_open("text")
        self._text = _new_buffer(require_text(text, _TEXT_LABEL))
        return self._emit_fields({"text": text})

    def set_refusal(self, text: str) -> Event:
        return self._set_fields("refusal", {"refusal": require_text(text, "a refusal")})

    def set_data(self, data: Event) -> Event:
        return self._set_fields("data", {"data": copy_object(data, "data")})

    def update_data(self, key: str, value: JsonValue) -> Event:
        """Set one key of the data and return the event, which has all of the data."""
        known = self._known_data()
        changed = {require_text(key, "a key of data"): copy_value(value, "data")}
        return self._set_fields("data", {"data": known | changed})

    def add_data_delta(self, delta: Event) -> Event:
        """Merge a delta into the data and return its event.

        Texts and lists are appended, numbers added, objects merged, other values replaced.
        """
        known, given = self._known_data(), copy_object(delta, "a delta of data")
        self._fields = {"data": _merge_values(known, given)}
        self._has_begun = True
        return self._parent.emit(self._make_event({"data": given}, "in_progress", delta=True))

    def set_image_url(self, image_url: str) -> Event:
        """Set the image by its address or a `data:` URL."""
        return self._set_fields("image", {"image_url": require_filled_text(image_url, "image_url")})

    def set_video_url(self, video_url: str) -> Event:
        return self._set_fields("video", {"video_url": require_filled_text(video_url, "video_url")})

    def set_audio(self, data: str, format: str) -> Event:  # noqa: A002  # the protocol's word
        """Set audio data in base64, and its format such as `wav`."""
        fields: Event = {
            "data": require_filled_text(data, "data"),
            "format": require_filled_text(format, "format"),
        }
        return self._set_fields("audio", fields)

    def set_file(
        self,
        *,
        file_url: str | None = None,
        file_id: str | None = None,
        filename: str | None = None,
        file_data: str | None = None,
    ) -> Event:
        given = (("file_url", file_url), ("file_id", file_id), ("file_data", file_data))
        fields: Event = {
            key: require_filled_text(each, key) for key, each in given if each is not None
        }
        if not fields:
            raise Misuse("a file needs its file_url, file_id or file_data")
        if filename is not None:
            fields["filename"] = require_filled_text(filename, "filename")
        return self._set_fields("file", fields)

    def complete(self) -> Event:
        """End the part and return its last event, which has all of its content."""
        self._require_open(self.type)
        fields = self._require_fields()
        self._is_complete = True
        self._end_reason = "this part is complete: create_content_builder() begins another"
        part = self._parent.emit(self._make_event(fields, "completed", delta=False))
        self._parent.close_child(part)
        return part

    def get_content_data(self) -> Event:
        """Return the part in its present state. It is not an event and has no number."""
        status = "completed" if self._is_complete else "in_progress"
        return self._make_event(self._current_fields(), status, delta=False)

    def put_fields(self, fields: Event) -> None:
        """Set all fields of the part, without an event.

        The fields are not copied: the caller must not change them afterwards.
        """
        self._text = _new_buffer(require_text(fields.get("text", ""), _TEXT_LABEL))
        self._fields = fields or None

    def fill_fields(self, fields: Event) -> None:
        """Check and set all fields of the part, without an event.

        Raises:
            Misuse: a value is not legal in a part of this type, or there is none.
        """
        for key, value in fields.items():
            if self.type == "data":
                copy_object(value, key)
            elif self.type in _TEXT_TYPES:
                require_text(value, key)
            else:
                require_filled_text(value, key)
        self.put_fields(fields)
        self._require_fields()

    def stop_early(self, why: str, /) -> Event | None:
        """End the part without an event, before it is complete.

        Args:
            why: error text of every later step.

        Returns:
            The part as it stands; None if it is empty.
        """
        self._end_reason = why
        fields = self._current_fields()
        return self._make_event(fields, "completed", delta=False) if fields else None

    def _set_fields(self, content_type: str, fields: Event) -> Event:
        self._require_open(content_type)
        self._fields = fields
        return self._emit_fields(fields)

    def _emit_fields(self, fields: Event) -> Event:
        # Clients' reducers let an event that is not a delta overwrite the last part, whatever its
        # index: the first event of a later part has to be a delta.
        begins, self._has_begun = self._index > 0 and not self._has_begun, True
        return self._parent.emit(self._make_event(fields, "in_progress", delta=begins))

    def _make_event(self, fields: Event, status: str, *, delta: bool) -> Event:
        return {
            "object": "content",
            "status": status,
            "type": self.type,
            "index": self._index,
            "delta": delta,
            "msg_id": self._message_id,
            **fields,
        }

    def _append_text(self, text: str) -> str:
        if self._end_reason or self.type != "text":  # saves a call for each delta
            self._require_open("text")
        piece = require_text(text, _TEXT_LABEL)
        self._text.write(piece)
        self._has_begun = True
        return piece

    def _current_fields(self) -> Event:
        return {"text": self._text.getvalue()} if self.type == "text" else self._fields or {}

    def _require_fields(self) -> Event:
        fields = self._current_fields()
        if not fields:
            raise Misuse(f"this part of type {self.type!r} is empty: set it before complete()")
        return fields

    def _known_data(self) -> Event:
        self._require_open("data")
        data = (self._fields or {}).get("data")
        return data if isinstance(data, dict) else {}

    def _require_open(self, content_type: str) -> None:
        if self._end_reason:
            raise Misuse(self._end_reason)
        if self.type != content_type:
            raise Misuse(f"this part is of type {self.type!r}: that is for {content_type!r} only")


def _new_buffer(text: str) -> StringIO:
    """Return a buffer to append to. It takes much less memory than a list of pieces."""
    begun = StringIO()
    begun.write(text)
    return begun


def _merge_values(old: JsonValue, new: JsonValue) -> JsonValue:
    if isinstance(old, str) and isinstance(new, str):
        return old + new
    if isinstance(old, list) and isinstance(new, list):
        return [*old, *new]
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {
            key: _merge_values(old[key], value) if key in old else value
            for key, value in new.items()
        }
    if _is_number(old) and _is_number(new):
        return old + new
    return new


def _is_number(value: JsonValue) -> TypeGuard[int | float]:
    # bool is a subclass of int; JSON's true and false are replaced, not added
    return isinstance(value, int | float) and not isinstance(value, bool)
