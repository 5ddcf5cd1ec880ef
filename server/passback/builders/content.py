"""The innermost builder: one part of a message."""

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
"""What each type of content holds."""
_TEXT_TYPES: Final = frozenset({"text", "refusal"})
_TEXT_LABEL: Final = "a text"


class ContentBuilder:
    """One part of a message: `MessageBuilder.create_content_builder` makes it.

    What is set replaces what there was; a delta is appended to it.
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
        self._end_reason = ""  # why nothing more can come
        self._is_complete = False
        self._has_begun = False
        head = encode(self._make_event({}, "in_progress", delta=True))
        self._delta_head = f'{head.removesuffix("}")},"text":'

    def add_text_delta(self, text: str | None) -> Event:
        """A piece of a text; None: an empty one."""
        piece = self._append_text("" if text is None else text)
        return self._parent.emit(self._make_event({"text": piece}, "in_progress", delta=True))

    def encode_text_delta(self, text: str) -> str:
        """As `encode(add_text_delta(text))`, without the object in between, so `on_event` has none: for servers that send many."""
        piece = quoted(self._append_text(text))
        return f'{self._delta_head}{piece},"sequence_number":{self._parent.next_number()}}}'

    def add_delta(self, text: str | None) -> Event:
        """As `add_text_delta`."""
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
        """Set one key of the data."""
        known = self._known_data()
        changed = {require_text(key, "a key of data"): copy_value(value, "data")}
        return self._set_fields("data", {"data": known | changed})

    def add_data_delta(self, delta: Event) -> Event:
        """Merge: texts and lists are appended, numbers added, objects merged, anything else is replaced."""
        known, given = self._known_data(), copy_object(delta, "a delta of data")
        self._fields = {"data": _merge_objects(known, given)}
        self._has_begun = True
        return self._parent.emit(self._make_event({"data": given}, "in_progress", delta=True))

    def set_image_url(self, image_url: str) -> Event:
        """An address, or a `data:` URL."""
        return self._set_fields("image", {"image_url": require_filled_text(image_url, "image_url")})

    def set_video_url(self, video_url: str) -> Event:
        return self._set_fields("video", {"video_url": require_filled_text(video_url, "video_url")})

    def set_audio(self, data: str, format: str) -> Event:  # noqa: A002  # the protocol's word
        """Base64, and its format such as `wav`."""
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
        """The whole part."""
        self._require_open(self.type)
        fields = self._require_fields()
        self._is_complete = True
        self._end_reason = "this part is complete: create_content_builder() begins another"
        part = self._parent.emit(self._make_event(fields, "completed", delta=False))
        self._parent.close_child(part)
        return part

    def get_content_data(self) -> Event:
        """The part as it stands; no event, and without a number."""
        status = "completed" if self._is_complete else "in_progress"
        return self._make_event(self._current_fields(), status, delta=False)

    def put_fields(self, fields: Event) -> None:
        """Set all that the part holds, without an event. For those who do not change it afterwards."""
        self._text = _new_buffer(require_text(fields.get("text", ""), _TEXT_LABEL))
        self._fields = fields or None

    def fill_fields(self, fields: Event) -> None:
        """As `put`, with any values: raises Misuse for those that a part of this type does not hold, and for none."""
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
        """Nothing more can come. The part as it stands, and as no event told it; None: it is empty."""
        self._end_reason = why
        fields = self._current_fields()
        return self._make_event(fields, "completed", delta=False) if fields else None

    def _set_fields(self, content_type: str, fields: Event) -> Event:
        self._require_open(content_type)
        self._fields = fields
        return self._emit_fields(fields)

    def _emit_fields(self, fields: Event) -> Event:
        # reducers let what is no delta overwrite the last part, whatever its index: a later part has to begin as one
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
        if self._end_reason or self.type != "text":
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
    """To be gone on with: much smaller than a list of its pieces."""
    begun = StringIO()
    begun.write(text)
    return begun


def _merge_objects(old: Event, delta: Event) -> Event:
    return old | {
        key: _merge_values(old[key], value) if key in old else value for key, value in delta.items()
    }


def _merge_values(old: JsonValue, new: JsonValue) -> JsonValue:
    if isinstance(old, str) and isinstance(new, str):
        return old + new
    if isinstance(old, list) and isinstance(new, list):
        return [*old, *new]
    if isinstance(old, dict) and isinstance(new, dict):
        return _merge_objects(old, new)
    if _is_number(old) and _is_number(new):
        return old + new
    return new


def _is_number(value: JsonValue) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
