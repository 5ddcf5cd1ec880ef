"""The builders of the Agent API's events.

Each legal step returns its event; any other raises an error that says what to do instead.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.agent_api import check_legal, rebuilt

from passback.builders import ContentBuilder, Event, MessageBuilder, Misuse, ResponseBuilder, encode


def _builder(session_id: str | None = "s") -> ResponseBuilder:
    return ResponseBuilder(session_id, "response_1", clock=lambda: 5.9)


def _begun() -> ResponseBuilder:
    builder = _builder()
    builder.created()
    builder.in_progress()
    return builder


def _message() -> tuple[ResponseBuilder, MessageBuilder]:
    """Return a response, and its message, which is announced."""
    builder = _begun()
    message = builder.create_message_builder(message_id="m")
    message.get_message_data()
    return builder, message


def _part(content_type: str = "text") -> tuple[MessageBuilder, ContentBuilder]:
    message = _message()[1]
    return message, message.create_content_builder(content_type)


# ---------------------------------------------------------------- legal steps
def test_a_streamed_text_gives_all_events_of_a_response() -> None:
    builder = _builder()
    events = list(builder.generate_streaming_response(["Hel", "lo"]))
    last = check_legal(events)
    text = {"object": "content", "type": "text", "index": 0, "msg_id": events[2]["id"]}
    assert events[3] == {
        **text,
        "status": "in_progress",
        "delta": True,
        "text": "Hel",
        "sequence_number": 3,
    }
    whole = {**text, "status": "completed", "delta": False, "text": "Hello", "sequence_number": 5}
    assert events[5] == whole
    assert last == {
        "object": "response",
        "status": "completed",
        "id": "response_1",
        "created_at": 5,
        "session_id": "s",
        "completed_at": 5,
        "output": [
            {
                "object": "message",
                "status": "completed",
                "id": events[2]["id"],
                "type": "message",
                "role": "assistant",
                "sequence_number": 6,
                "content": [whole],
            }
        ],
        "sequence_number": 7,
    }
    assert builder.get_response_data() == last


def test_a_second_text_is_a_response_of_its_own() -> None:
    builder = ResponseBuilder()
    first, second = (list(builder.generate_streaming_response(["a"], "user")) for _ in range(2))
    assert check_legal(first)["id"] != check_legal(second)["id"] == builder.response_id
    assert first[2]["role"] == "user"


def test_parts_of_every_type_make_one_message() -> None:
    builder, message = _message()
    steps: list[tuple[str, Callable[[ContentBuilder], Event], Event]] = [
        ("text", lambda part: part.set_text("t"), {"text": "t"}),
        ("image", lambda part: part.set_image_url("u"), {"image_url": "u"}),
        ("data", lambda part: part.set_data({"a": 1}), {"data": {"a": 1}}),
        ("audio", lambda part: part.set_audio("d", "wav"), {"data": "d", "format": "wav"}),
        ("file", lambda part: part.set_file(file_id="f"), {"file_id": "f"}),
        (
            "file",
            lambda part: part.set_file(file_url="u", filename="n"),
            {"file_url": "u", "filename": "n"},
        ),
        ("video", lambda part: part.set_video_url("v"), {"video_url": "v"}),
        ("refusal", lambda part: part.set_refusal("no"), {"refusal": "no"}),
    ]
    for index, (content_type, fill, fields) in enumerate(steps):
        part = message.create_content_builder(content_type, index=index)
        shown = fill(part)
        assert shown.items() >= {**fields, "delta": index > 0, "status": "in_progress"}.items()
        whole = part.complete()
        assert whole.items() >= {**fields, "delta": False, "status": "completed"}.items()
        assert part.get_content_data() == {k: v for k, v in whole.items() if k != "sequence_number"}
    ended = message.complete()
    contents = ended["content"]
    assert isinstance(contents, list)
    assert len(contents) == len(steps)
    assert builder.completed()["output"] == [ended]


def test_setting_a_text_replaces_it_and_adding_a_delta_appends() -> None:
    _, part = _part()
    part.add_text_delta("gone")
    part.set_text("a")
    part.add_delta("b")
    part.add_text_delta(None)
    assert part.get_content_data()["text"] == "ab"
    assert part.complete()["text"] == "ab"


def test_an_empty_text_is_a_text() -> None:
    assert _part()[1].complete()["text"] == ""


def test_data_is_merged() -> None:
    _, part = _part("data")
    assert part.get_content_data().get("data") is None
    part.add_data_delta({"s": "a", "l": [1], "n": 1, "d": {"x": "a"}, "b": True, "o": 1})
    delta: Event = {"s": "b", "l": [2], "n": 1.5, "d": {"x": "b", "y": 1}, "b": False, "o": None}
    assert part.add_data_delta(delta)["data"] == delta
    shown = part.update_data("new", 1)
    assert shown["data"] == {
        "s": "ab",
        "l": [1, 2],
        "n": 2.5,
        "d": {"x": "ab", "y": 1},
        "b": False,
        "o": None,
        "new": 1,
    }
    assert part.complete()["data"] == shown["data"]


def test_a_delta_is_encoded_as_its_event_would_be() -> None:
    texts = ["a", '"\\\n', "\u0085\u2028\u2029é😀", ""]
    one, other = _part()[1], _part()[1]
    lines = [one.encode_text_delta(text) for text in texts]
    assert lines == [encode(other.add_text_delta(text)) for text in texts]
    assert all(line.isascii() for line in lines)
    assert one.complete() == other.complete()


def test_a_message_grows_by_deltas_of_its_parts() -> None:
    builder, message = _message()
    events = [
        message.add_delta_content({"type": "text", "text": "Hel"}),
        message.add_delta_content({"type": "text", "text": "lo", "index": 0, "delta": True}),
        message.content_completed(0),
        message.add_delta_content({"type": "data", "data": {"a": "x"}}),
        message.add_delta_content({"type": "data", "data": {"a": "y"}, "index": 1}),
        message.content_completed(content_index=1),
    ]
    deltas = [(event["index"], event["delta"], event["status"]) for event in events]
    growing, whole = "in_progress", "completed"
    assert deltas == [
        *((0, True, growing), (0, True, growing), (0, False, whole)),
        *((1, True, growing), (1, True, growing), (1, False, whole)),
    ]
    assert (events[2]["text"], events[5]["data"]) == ("Hello", {"a": "xy"})
    ended = message.complete()
    assert ended["content"] == [events[2], events[5]]
    assert builder.completed()["output"] == [ended]


def test_parts_and_messages_made_without_a_builder_are_added() -> None:
    builder, message = _message()
    part = message.add_content({"type": "text", "text": "a", "delta": True, "index": 7})
    image = message.add_content({"type": "image", "image_url": "u"})
    assert [part["index"], image["index"]] == [0, 1]
    own = message.complete("incomplete", usage={"input_tokens": 1})
    assert own["content"] == [part, image]
    assert (own["status"], own["usage"]) == ("incomplete", {"input_tokens": 1})
    builder.add_message({"object": "message", "id": "x"})
    builder.update_message({"object": "message", "id": "x", "status": "completed"})
    assert builder.completed()["output"] == [
        own,
        {"object": "message", "id": "x", "status": "completed"},
    ]


ENDS: list[tuple[Callable[[ResponseBuilder], Event], Event]] = [
    (
        lambda b: b.completed(usage={"u": 1}, metadata={"m": 1}),
        {"usage": {"u": 1}, "metadata": {"m": 1}},
    ),
    (lambda b: b.incomplete(metadata={"m": 1}), {"metadata": {"m": 1}}),
    (lambda b: b.canceled(usage={"u": 1}), {"usage": {"u": 1}}),
    (lambda b: b.rejected(), {}),
    (
        lambda b: b.failed("c", "m", retryable=True),
        {"error": {"code": "c", "message": "m", "retryable": True}},
    ),
]


@pytest.mark.parametrize(("end", "fields"), ENDS)
def test_a_response_has_one_of_its_ends(
    end: Callable[[ResponseBuilder], Event], fields: Event
) -> None:
    builder = _begun()
    last = end(builder)
    assert last.items() >= {**fields, "completed_at": 5, "output": []}.items()
    assert builder.status == last["status"]
    with pytest.raises(Misuse, match=r"has ended, and reset\(\) begins another"):
        end(builder)


def test_a_queued_response_may_be_cancelled() -> None:
    builder = _builder(None)
    events = [builder.created(), builder.queued(), builder.canceled()]
    assert [event["status"] for event in events] == ["created", "queued", "canceled"]
    check_legal(events)


def test_a_response_that_is_reset_begins_anew() -> None:
    builder = _message()[0]
    builder.reset()
    assert (builder.status, builder.response_id != "response_1") == ("new", True)
    assert builder.created()["sequence_number"] == 0


def test_the_example_of_the_module_is_true() -> None:
    builder = ResponseBuilder(session_id="s")
    events = [builder.created(), builder.in_progress()]
    message = builder.create_message_builder()
    events.append(message.get_message_data())
    content = message.create_content_builder("text")
    events += [content.add_text_delta("Hel"), content.add_text_delta("lo")]
    events += [content.complete(), message.complete(), builder.completed()]
    check_legal(events)
    assert rebuilt(events).joined_text() == "Hello"
    assert json.loads(encode(events[-1])) == events[-1]


# ---------------------------------------------------------------- misuse
def _twice(step: Callable[[Any], object], subject: object) -> None:
    step(subject)
    step(subject)


def _named_again() -> None:
    builder = _begun()
    builder.add_message({"object": "message", "id": "x"})
    builder.create_message_builder(message_id="x")


MISUSES: list[tuple[Callable[[], object], str]] = [
    (lambda: _builder().in_progress(), r"is new cannot become in_progress: call created\(\)"),
    (lambda: _builder().completed(), r"call created\(\)"),
    (lambda: _twice(ResponseBuilder.created, _builder()), r"call .*in_progress\(\)"),
    (lambda: _twice(ResponseBuilder.in_progress, _twice_begun()), r"call .*completed\(\)"),
    (lambda: _builder().create_message_builder(), r"call created\(\), then in_progress\(\)"),
    (_message()[0].create_message_builder, r"complete\(\) it before the next one begins"),
    (_message()[0].completed, r"complete\(\) it before the response ends"),
    (lambda: _begun().add_message({"id": "x"}), "its object is 'message'"),
    (lambda: _begun().add_message({"object": "message"}), "the id of a message is a str"),
    (lambda: _added(status="in_progress"), "the status of a message that has ended is one of"),
    (lambda: _added(role="robot"), "the role of a message that has ended is one of"),
    (lambda: _added(type=None), "the type of a message that has ended is one of"),
    (_named_again, "there is a message 'x' already"),
    (lambda: _completed().create_message_builder(), r"is completed: reset\(\) begins another"),
    (
        lambda: next(_twice_begun().generate_streaming_response(["a"])),
        r"is created cannot become created",
    ),
    (lambda: _message()[1].create_content_builder("magic"), "text, .*, and this is 'magic'"),
    (lambda: _message()[1].create_content_builder("text", index=1), "has the index 0"),
    (_part()[0].create_content_builder, r"complete\(\) it before the next one begins"),
    (_part()[0].complete, r"complete\(\) it before its message ends"),
    (lambda: _twice(MessageBuilder.complete, _message()[1]), r"create_message_builder\(\) begins"),
    (lambda: _ended_message().create_content_builder(), r"create_message_builder\(\) begins"),
    (lambda: _message()[1].add_content({"text": "a"}), "the type of a part .* this is None"),
    (lambda: _message()[1].add_content({"type": "image"}), r"is empty: set it before complete\(\)"),
    (
        lambda: _part()[0].add_delta_content({"type": "text", "text": "a"}),
        r"complete\(\) it before",
    ),
    (lambda: _delta(index=1), "no part with the index 1 is open"),
    (lambda: _delta(type="data", data={}), "'text': that is for 'data' only"),
    (lambda: _part()[0].content_completed(1), "no part with the index 1 is open"),
    (lambda: _ended_message().content_completed(0), r"create_message_builder\(\) begins"),
    (lambda: _twice(ContentBuilder.complete, _part()[1]), r"create_content_builder\(\) begins"),
    (lambda: _ended_part().add_text_delta("a"), r"create_content_builder\(\) begins"),
    (lambda: _ended_part().encode_text_delta("a"), r"create_content_builder\(\) begins"),
    (_part("image")[1].complete, r"is empty: set it before complete\(\)"),
    (lambda: _part("image")[1].add_text_delta("a"), "'image': that is for 'text' only"),
    (lambda: _part("image")[1].set_text("a"), "'image': that is for 'text' only"),
    (lambda: _part()[1].set_image_url("a"), "'text': that is for 'image' only"),
    (lambda: _part()[1].update_data("a", 1), "'text': that is for 'data' only"),
    (lambda: _part("file")[1].set_file(filename="a"), "needs its file_url, file_id or file_data"),
    (lambda: _part()[1].add_text_delta(1), "a text is a str, and this is int"),  # type: ignore[arg-type]  # the misuse
]


def _twice_begun() -> ResponseBuilder:
    builder = _builder()
    builder.created()
    return builder


def _added(**more: Any) -> None:
    _begun().add_message({"object": "message", "id": "x", **more})


def _delta(**more: Any) -> None:
    _part()[0].add_delta_content({"type": "text", "text": "a", "index": 0, **more})


def _completed() -> ResponseBuilder:
    builder = _begun()
    builder.completed()
    return builder


def _ended_message() -> MessageBuilder:
    message = _message()[1]
    message.complete()
    return message


def _ended_part() -> ContentBuilder:
    part = _part()[1]
    part.complete()
    return part


@pytest.mark.parametrize(("misuse", "words"), MISUSES)
def test_misuse_says_what_to_do(misuse: Callable[[], object], words: str) -> None:
    with pytest.raises(Misuse, match=words):
        misuse()


@pytest.mark.parametrize("value", [float("nan"), {1}])
def test_values_that_are_not_json_are_not_encoded(value: Any) -> None:
    with pytest.raises(Misuse, match="JSON's values"):
        encode({"n": value})
