"""The innermost builder: one part of a message."""

from collections.abc import Mapping
from io import StringIO
from json.encoder import encode_basestring_ascii as quoted
from typing import Final, TypeGuard

from pydantic import JsonValue

from passback.builders.events import (
    Event,
    Home,
    Misuse,
    encode,
    filled_in,
    object_in,
    text_in,
    value_in,
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
_SAID: Final = frozenset({"text", "refusal"})
_TEXT: Final = "a text"


class ContentBuilder:
    """One part of a message: `MessageBuilder.create_content_builder` makes it.

    What is set replaces what there was; a delta is appended to it.
    """

    def __init__(self, home: Home, message_id: str, content_type: str, index: int) -> None:
        self.type = content_type
        self._home = home
        self._message_id = message_id
        self._index = index
        self._fields: Event | None = None
        self._text = StringIO()
        self._over = ""  # why nothing more can come
        self._is_complete = False
        self._begun = False
        head = encode(self._event({}, "in_progress", delta=True))
        self._delta_head = f'{head.removesuffix("}")},"text":'

    # ---------------------------------------------------------------- texts
    def add_text_delta(self, text: str | None) -> Event:
        """A piece of a text; None: an empty one."""
        piece = self._piece("" if text is None else text)
        return self._home.emit(self._event({"text": piece}, "in_progress", delta=True))

    def encode_text_delta(self, text: str) -> str:
        """As `encode(add_text_delta(text))`, without the object in between, so `on_event` has none: for servers that send many."""
        piece = quoted(self._piece(text))
        return f'{self._delta_head}{piece},"sequence_number":{self._home.number()}}}'

    def add_delta(self, text: str | None) -> Event:
        """As `add_text_delta`."""
        return self.add_text_delta(text)

    def set_text(self, text: str) -> Event:
        self._refuse("text")
        self._text = _begun(text_in(text, _TEXT))
        return self._shown({"text": text})

    def set_refusal(self, text: str) -> Event:
        return self._set("refusal", {"refusal": text_in(text, "a refusal")})

    # ---------------------------------------------------------------- data
    def set_data(self, data: Event) -> Event:
        return self._set("data", {"data": object_in(data, "data")})

    def update_data(self, key: str, value: JsonValue) -> Event:
        """Set one key of the data."""
        known = self._known_data()
        changed = {text_in(key, "a key of data"): value_in(value, "data")}
        return self._set("data", {"data": known | changed})

    def add_data_delta(self, delta: Event) -> Event:
        """Merge: texts and lists are appended, numbers added, objects merged, anything else is replaced."""
        known, given = self._known_data(), object_in(delta, "a delta of data")
        self._fields = {"data": _merged(known, given)}
        self._begun = True
        return self._home.emit(self._event({"data": given}, "in_progress", delta=True))

    # ---------------------------------------------------------------- media
    def set_image_url(self, image_url: str) -> Event:
        """An address, or a `data:` URL."""
        return self._set("image", {"image_url": filled_in(image_url, "image_url")})

    def set_video_url(self, video_url: str) -> Event:
        return self._set("video", {"video_url": filled_in(video_url, "video_url")})

    def set_audio(self, data: str, format: str) -> Event:  # noqa: A002  # the protocol's word
        """Base64, and its format such as `wav`."""
        fields: Event = {"data": filled_in(data, "data"), "format": filled_in(format, "format")}
        return self._set("audio", fields)

    def set_file(
        self,
        *,
        file_url: str | None = None,
        file_id: str | None = None,
        filename: str | None = None,
        file_data: str | None = None,
    ) -> Event:
        given = (("file_url", file_url), ("file_id", file_id), ("file_data", file_data))
        fields: Event = {key: filled_in(each, key) for key, each in given if each is not None}
        if not fields:
            raise Misuse("a file needs its file_url, file_id or file_data")
        if filename is not None:
            fields["filename"] = filled_in(filename, "filename")
        return self._set("file", fields)

    # ---------------------------------------------------------------- its end
    def complete(self) -> Event:
        """The whole part."""
        self._refuse(self.type)
        fields = self._filled()
        self._is_complete = True
        self._over = "this part is complete: create_content_builder() begins another"
        part = self._home.emit(self._event(fields, "completed", delta=False))
        self._home.close(part)
        return part

    def get_content_data(self) -> Event:
        """The part as it stands; no event, and without a number."""
        status = "completed" if self._is_complete else "in_progress"
        return self._event(self._whole(), status, delta=False)

    def put(self, fields: Event) -> None:
        """Set all that the part holds, without an event. For those who do not change it afterwards."""
        self._text = _begun(text_in(fields.get("text", ""), _TEXT))
        self._fields = fields or None

    def fill(self, fields: Event) -> None:
        """As `put`, with any values: raises Misuse for those that a part of this type does not hold, and for none."""
        for key, value in fields.items():
            if self.type == "data":
                object_in(value, key)
            elif self.type in _SAID:
                text_in(value, key)
            else:
                filled_in(value, key)
        self.put(fields)
        self._filled()

    def cut(self, why: str, /) -> Event | None:
        """Nothing more can come. The part as it stands, and as no event told it; None: it is empty."""
        self._over = why
        fields = self._whole()
        return self._event(fields, "completed", delta=False) if fields else None

    # ---------------------------------------------------------------- its events
    def _set(self, content_type: str, fields: Event) -> Event:
        self._refuse(content_type)
        self._fields = fields
        return self._shown(fields)

    def _shown(self, fields: Event) -> Event:
        # reducers let what is no delta overwrite the last part, whatever its index: a later part has to begin as one
        begins, self._begun = self._index > 0 and not self._begun, True
        return self._home.emit(self._event(fields, "in_progress", delta=begins))

    def _event(self, fields: Event, status: str, *, delta: bool) -> Event:
        return {
            "object": "content",
            "status": status,
            "type": self.type,
            "index": self._index,
            "delta": delta,
            "msg_id": self._message_id,
            **fields,
        }

    def _piece(self, text: str) -> str:
        if self._over or self.type != "text":
            self._refuse("text")
        piece = text_in(text, _TEXT)
        self._text.write(piece)
        self._begun = True
        return piece

    def _whole(self) -> Event:
        return {"text": self._text.getvalue()} if self.type == "text" else self._fields or {}

    def _filled(self) -> Event:
        fields = self._whole()
        if not fields:
            raise Misuse(f"this part of type {self.type!r} is empty: set it before complete()")
        return fields

    def _known_data(self) -> Event:
        self._refuse("data")
        data = (self._fields or {}).get("data")
        return data if isinstance(data, dict) else {}

    def _refuse(self, content_type: str) -> None:
        if self._over:
            raise Misuse(self._over)
        if self.type != content_type:
            raise Misuse(f"this part is of type {self.type!r}: that is for {content_type!r} only")


def _begun(text: str) -> StringIO:
    """To be gone on with: much smaller than a list of its pieces."""
    begun = StringIO()
    begun.write(text)
    return begun


def _merged(old: Event, delta: Event) -> Event:
    return old | {
        key: _sum(old[key], value) if key in old else value for key, value in delta.items()
    }


def _sum(old: JsonValue, new: JsonValue) -> JsonValue:
    if isinstance(old, str) and isinstance(new, str):
        return old + new
    if isinstance(old, list) and isinstance(new, list):
        return [*old, *new]
    if isinstance(old, dict) and isinstance(new, dict):
        return _merged(old, new)
    if _is_number(old) and _is_number(new):
        return old + new
    return new


def _is_number(value: JsonValue) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
