"""Content of all kinds is read from JSON, and shown as it could be posted again."""

import re

import pytest
from pydantic import JsonValue, TypeAdapter, ValidationError

from passback.core.errors import AttachmentTooLarge, InvalidRequest, ResultTooLarge
from passback.core.messages import Content, DataPart, MediaPart, RefusalPart, TextPart
from passback.native.parts import PostedContent, read_content, read_result, show_content

_posted: TypeAdapter[PostedContent] = TypeAdapter(PostedContent)
PNG = "data:image/png;base64,iVBORw0="
MOST = 100

CONTENTS: list[tuple[JsonValue, Content]] = [
    ("hello", "hello"),
    ([{"type": "text", "text": "hello"}], (TextPart("hello"),)),
    (
        [{"type": "text", "text": " "}, {"type": "data", "data": {"a": [1]}}],
        (DataPart({"a": [1]}),),
    ),
    (
        [{"type": "image_url", "image_url": {"url": "https://x/a.png", "detail": "low"}}],
        (MediaPart("image", "https://x/a.png"),),
    ),
    ([{"type": "image_url", "image_url": PNG}], (MediaPart("image", PNG),)),
    (
        [{"type": "image", "url": "http://x/", "mediaType": "image/png", "name": "a"}],
        (MediaPart("image", "http://x/", "image/png", "a"),),
    ),
    (
        [{"type": "file", "data": "iVBORw0=", "mediaType": "image/png"}],
        (MediaPart("file", PNG, "image/png"),),
    ),
    (
        [{"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}}],
        (MediaPart("audio", "data:audio/wav;base64,UklG", "audio/wav"),),
    ),
    (
        [{"type": "input_audio", "input_audio": {"data": "UklG", "format": "mp3"}}],
        (MediaPart("audio", "data:audio/mpeg;base64,UklG", "audio/mpeg"),),
    ),
]


@pytest.mark.parametrize(("posted", "content"), CONTENTS)
def test_content_is_read(posted: JsonValue, content: Content) -> None:
    assert read_content(_posted.validate_python(posted), MOST) == content


@pytest.mark.parametrize(
    "posted",
    [
        "",
        " \n",
        [],
        [{"type": "text", "text": ""}],
        [{"type": "image"}],
        [{"type": "image", "data": "AAAA"}],
    ],
)
def test_empty_content_is_refused(posted: JsonValue) -> None:
    with pytest.raises(InvalidRequest):
        read_content(_posted.validate_python(posted), MOST)


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    "posted",
    [
        None,
        1,
        True,
        {"type": "text", "text": "a"},
        ["a"],
        [{}],
        [{"type": "video", "url": "https://x/"}],
        [{"type": "text", "text": 1}],
        [{"type": "text"}],
        [{"type": "refusal", "text": "a"}],
        [{"type": "image", "url": "javascript:alert(1)"}],
        [{"type": "image", "url": "file:///etc/passwd"}],
        [{"type": "image_url", "image_url": {}}],
        [{"type": "image", "url": "http://"}],
        [{"type": "image", "url": "https:///a.png"}],
        [{"type": "image", "url": "https://x/\r\nHost: y"}],
        [{"type": "image", "url": "https://x/a b"}],
        [{"type": "image", "url": "https://x/\n"}],
        [{"type": "image_url", "image_url": "data:image/png;base64,AAAA\r\n"}],
        [{"type": "image", "data": "not base64!", "mediaType": "image/png"}],
        [{"type": "image", "data": "AAAA", "mediaType": "a\r\nb/c"}],
        [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "exe"}}],
    ],
)
def test_content_of_the_wrong_kind_is_refused(posted: JsonValue) -> None:
    with pytest.raises(ValidationError):
        _posted.validate_python(posted)


@pytest.mark.parametrize(
    ("posted", "content"),
    [
        ("", ""),
        ("done", "done"),
        ([{"type": "text", "text": "a"}], (TextPart("a"),)),
        ([{"type": "text", "text": ""}], (TextPart(""),)),
        (
            [{"type": "image", "url": "https://x/", "media_type": "image/png"}],
            (MediaPart("image", "https://x/", "image/png"),),
        ),
        (
            [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "line": 1}],
            (DataPart([{"type": "text", "text": "a"}, {"type": "text", "text": "b", "line": 1}]),),
        ),
        ({"ok": True}, (DataPart({"ok": True}),)),
        ([], (DataPart([]),)),
        ([1, "a"], (DataPart([1, "a"]),)),
        ([{"type": "image"}], (DataPart([{"type": "image"}]),)),
        (0, (DataPart(0),)),
        (None, (DataPart(None),)),
    ],
)
def test_a_result_may_be_any_json(posted: JsonValue, content: Content) -> None:
    assert read_result(posted, 100) == content


@pytest.mark.promise("P11")
@pytest.mark.parametrize("posted", ["x" * 101, "é" * 51, [1] * 51, {"a": "x" * 93}])
def test_a_result_has_a_limit(posted: JsonValue) -> None:
    with pytest.raises(ResultTooLarge):
        read_result(posted, 100)


@pytest.mark.parametrize(
    "shown",
    [
        "hello",
        [{"type": "text", "text": "a"}, {"type": "data", "data": [1]}],
        [{"type": "image", "url": PNG, "mediaType": "image/png", "name": "a.png"}],
        [{"type": "audio", "url": "https://x/"}],
    ],
)
def test_content_is_shown_as_it_was_posted(shown: JsonValue) -> None:
    assert show_content(read_content(_posted.validate_python(shown), MOST)) == shown


def test_a_refusal_is_shown_as_one() -> None:
    assert show_content((RefusalPart("no"),)) == [{"type": "refusal", "text": "no"}]


# ---------------------------------------------------------------- attachments
def _inline(size: int) -> dict[str, JsonValue]:
    return {"type": "image", "url": "data:image/png;base64," + "A" * (size * 4 // 3)}


@pytest.mark.promise("P11")
@pytest.mark.parametrize(
    ("posted", "fits"),
    [
        ([_inline(99)], True),
        ([_inline(102)], False),
        ([_inline(60), _inline(60)], False),
        ([{"type": "file", "data": "A" * 200, "mediaType": "text/plain"}], False),
        ([{"type": "image", "url": f"https://x/{'a' * 200}"}], True),
    ],
)
def test_the_inline_attachments_of_a_message_have_a_limit(posted: JsonValue, fits: bool) -> None:
    content = _posted.validate_python(posted)
    if fits:
        assert read_content(content, MOST)
        return
    with pytest.raises(AttachmentTooLarge) as refused:
        read_content(content, MOST)
    assert refused.value.details == {"limit": MOST}


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    ("posted", "wrong"),
    [
        ({"type": "image", "url": "data:,hello"}, "has a data: URL that is not base64"),
        ({"type": "file", "url": "data:text/plain;base64"}, "has a data: URL that is not base64"),
        ({"type": "image", "url": "data:image/png;base64,AA!A"}, "has a data: URL that is not"),
        ({"type": "image", "url": "data:image/png;base64,"}, "has a data: URL that is not base64"),
        ({"type": "image", "url": "data:image/png;base64,A==="}, "has a data: URL that is not"),
        ({"type": "image", "url": "data:image/png;base64,AA=A"}, "has a data: URL that is not"),
        ({"type": "image", "url": "data:image/png;base64,AAAé"}, "has a data: URL that is not"),
        ({"type": "image", "url": "data:;base64,AAAA"}, "cannot be text/plain"),
        ({"type": "image", "url": "data:text/html;base64,AAAA"}, "cannot be text/html"),
        ({"type": "audio", "url": "https://x/", "mediaType": "image/png"}, "cannot be image/png"),
        ({"type": "audio", "data": "AAAA", "mediaType": "video/mp4"}, "cannot be video/mp4"),
        (
            {"type": "image", "url": PNG, "mediaType": "image/jpeg"},
            "is declared as image/jpeg, and its data as image/png",
        ),
    ],
)
def test_an_attachment_of_another_type_than_declared_is_refused(
    posted: dict[str, JsonValue], wrong: str
) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(wrong)):
        read_content(_posted.validate_python([posted]), MOST)


@pytest.mark.parametrize(
    "posted",
    [
        {"type": "file", "url": "data:;base64,AAAA"},
        {"type": "file", "url": "data:application/pdf;base64,AAAA", "mediaType": "Application/PDF"},
        {"type": "image", "url": "data:IMAGE/PNG;name=a;base64,AAAA", "mediaType": "image/png"},
    ],
)
def test_an_attachment_of_the_declared_type_is_read(posted: dict[str, JsonValue]) -> None:
    content = read_content(_posted.validate_python([posted]), MOST)
    assert isinstance(content, tuple)
    [part] = content
    assert isinstance(part, MediaPart)
    assert part.url == posted["url"]
