"""What builders are given: a value that the protocol has not is refused at the call, and nobody changes it afterwards."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from passback.builders import ContentBuilder, Event, MessageBuilder, Misuse, ResponseBuilder, encode


def _begun() -> ResponseBuilder:
    response = ResponseBuilder("s")
    response.created()
    response.in_progress()
    return response


def _message() -> MessageBuilder:
    message = _begun().create_message_builder(message_id="m")
    message.get_message_data()
    return message


def _part(content_type: str) -> ContentBuilder:
    return _message().create_content_builder(content_type)


def _deep() -> dict[str, Any]:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    return deep


ANY: Any = None
NAN = float("nan")
REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: ResponseBuilder(""), "session_id is empty"),
    (lambda: ResponseBuilder(5), "session_id is a str, and this is int"),  # type: ignore[arg-type]
    (lambda: ResponseBuilder("s", 5), "response_id is a str"),  # type: ignore[arg-type]
    (lambda: _begun().failed(5, "m"), "code is a str"),  # type: ignore[arg-type]
    (lambda: _begun().failed("", "m"), "code is empty"),
    (lambda: _begun().failed("c", ANY), "message is a str, and this is NoneType"),
    (lambda: _begun().failed("c", "m", after=NAN), "an error has nan, which JSON has not"),
    (lambda: _begun().completed(usage=5), "usage is a dict"),  # type: ignore[arg-type]
    (lambda: _begun().completed(metadata="x"), "metadata is a dict"),  # type: ignore[arg-type]
    (lambda: _begun().create_message_builder(ANY), "role is one of assistant, .* this is None"),
    (lambda: _begun().create_message_builder("assistant", "magic"), "message_type is one of"),
    (lambda: _begun().create_message_builder(message_id=""), "message_id is empty"),
    (lambda: _begun().create_message_builder(metadata={"a": NAN}), "metadata has nan"),
    (lambda: _begun().add_message(ANY), "a message is a dict, and this is NoneType"),
    (lambda: _begun().add_message({"id": "m"}), "its object is 'message'"),
    (lambda: _begun().add_message({"object": "message"}), "the id of a message is a str"),
    (lambda: _message().complete("done"), "one of completed, incomplete, .*'done'"),  # type: ignore[arg-type]
    (lambda: _message().complete(usage=5), "usage is a dict"),  # type: ignore[arg-type]
    (lambda: _message().create_content_builder(ANY), "the type of a part is one of"),
    (lambda: _message().add_content(ANY), "a part is a dict"),
    (lambda: _message().add_content({"type": "text", "text": 5}), "text is a str"),
    (lambda: _message().add_content({"type": "image", "image_url": ""}), "image_url is empty"),
    (lambda: _message().add_content({"type": "data", "data": "x"}), "data is a dict"),
    (lambda: _part("text").set_text(ANY), "a text is a str, and this is NoneType"),
    (lambda: _part("refusal").set_refusal(ANY), "a refusal is a str"),
    (lambda: _part("image").set_image_url(5), "image_url is a str"),  # type: ignore[arg-type]
    (lambda: _part("video").set_video_url(""), "video_url is empty"),
    (lambda: _part("audio").set_audio(5, "wav"), "data is a str"),  # type: ignore[arg-type]
    (lambda: _part("audio").set_audio("x", ANY), "format is a str"),
    (lambda: _part("file").set_file(file_id=5), "file_id is a str"),  # type: ignore[arg-type]
    (lambda: _part("file").set_file(file_id="f", filename=""), "filename is empty"),
    (lambda: _part("data").set_data([]), "data is a dict, and this is list"),  # type: ignore[arg-type]
    (lambda: _part("data").set_data({1: 2}), "a key of data is a str"),  # type: ignore[dict-item]
    (lambda: _part("data").set_data({"a": [{1}]}), "a value of the type set, which"),  # type: ignore[list-item]
    (lambda: _part("data").set_data({"a": float("inf")}), "data has inf"),
    (lambda: _part("data").set_data(_deep()), "nested too deeply"),
    (lambda: _part("data").update_data(5, 1), "a key of data is a str"),  # type: ignore[arg-type]
    (lambda: _part("data").update_data("a", NAN), "data has nan"),
    (lambda: _part("data").add_data_delta(ANY), "a delta of data is a dict"),
]


@pytest.mark.parametrize(("misuse", "words"), REFUSED)
def test_a_value_that_the_protocol_has_not_is_refused(
    misuse: Callable[[], object], words: str
) -> None:
    with pytest.raises(Misuse, match=words):
        misuse()


def test_a_part_that_is_refused_leaves_the_message_as_it_was() -> None:
    message = _message()
    with pytest.raises(Misuse):
        message.add_content({"type": "image", "image_url": 5})
    assert message.add_content({"type": "data", "data": {"a": 1}})["index"] == 0


def test_what_is_given_is_copied() -> None:
    given: dict[str, Any] = {"a": [1, (2.5, None)], "b": {"c": "d"}}
    response = _begun()
    message = response.create_message_builder(metadata=given)
    announced = message.get_message_data()
    part = message.create_content_builder("data")
    events = [announced, part.set_data(given), part.add_data_delta(given)]
    events += [part.update_data("e", given), part.complete()]
    events += [message.complete(usage=given), response.completed(usage=given, metadata=given)]
    before = copy.deepcopy(events)
    given["a"][0] = "changed"
    given["b"].clear()
    assert events == before
    assert events[1]["data"] == {"a": [1, [2.5, None]], "b": {"c": "d"}}


def test_an_event_that_was_sent_is_not_changed_by_later_ones() -> None:
    message = _message()
    part = message.create_content_builder("data")
    events, written = [], []
    steps: list[Callable[[], Event]] = [
        lambda: part.set_data({"a": "x", "l": [1], "o": {"p": "q"}}),
        lambda: part.add_data_delta({"a": "y", "l": [2], "o": {"p": "r"}}),
        lambda: part.update_data("b", 1),
        part.complete,
        message.complete,
    ]
    for step in steps:
        events.append(step())
        written.append(encode(events[-1]))
    assert [encode(event) for event in events] == written


def test_a_response_without_a_session_has_one_of_its_own() -> None:
    first, second = (ResponseBuilder(None).created()["session_id"] for _ in range(2))
    assert isinstance(first, str)
    assert first != second


# ---------------------------------------------------------------- the announcement
FIRSTS: list[Callable[[MessageBuilder], object]] = [
    MessageBuilder.get_message_data,
    MessageBuilder.create_content_builder,
    lambda message: message.add_content({"type": "text", "text": "a"}),
    lambda message: message.add_delta_content({"type": "text", "text": "a"}),
    MessageBuilder.complete,
]


@pytest.mark.parametrize("first", FIRSTS)
def test_a_message_announces_itself_first_and_once(
    first: Callable[[MessageBuilder], object],
) -> None:
    events: list[Event] = []
    response = ResponseBuilder("s", on_event=events.append)
    response.created()
    response.in_progress()
    message = response.create_message_builder(message_id="m")
    assert len(events) == 2
    first(message)
    announced = events[2]
    assert (announced["object"], announced["sequence_number"]) == ("message", 2)
    assert announced["status"] == "in_progress"
    assert sum(event["status"] == "in_progress" for event in events if event.get("id") == "m") == 1


def test_the_announcement_is_given_also_behind_the_first_content_and_once() -> None:
    message = _begun().create_message_builder()
    content = message.create_content_builder()
    announced = message.get_message_data()
    assert [announced["sequence_number"], content.set_text("a")["sequence_number"]] == [2, 3]
    with pytest.raises(Misuse, match="send it once"):
        message.get_message_data()
    content.complete()
    message.complete()
    with pytest.raises(Misuse, match=r"create_message_builder\(\) begins another"):
        message.get_message_data()


REFUSED_FIRSTS: list[Callable[[MessageBuilder], object]] = [
    lambda message: message.create_content_builder("magic"),
    lambda message: message.create_content_builder("text", index=1),
    lambda message: message.add_content({"type": "image"}),
    lambda message: message.add_delta_content({"type": "image", "image_url": "u"}),
    lambda message: message.add_delta_content({"type": "text", "text": 5}),
    lambda message: message.add_delta_content({"type": "data", "data": "x"}),
    lambda message: message.add_delta_content({"type": "text", "text": "a", "index": 0}),
    lambda message: message.content_completed(0),
    lambda message: message.complete("done"),  # type: ignore[arg-type]  # the misuse
]


@pytest.mark.parametrize("first", REFUSED_FIRSTS)
def test_a_step_that_is_refused_announces_nothing(
    first: Callable[[MessageBuilder], object],
) -> None:
    events: list[Event] = []
    response = ResponseBuilder("s", on_event=events.append)
    response.created()
    response.in_progress()
    message = response.create_message_builder()
    with pytest.raises(Misuse):
        first(message)
    assert len(events) == 2
    assert message.create_content_builder().set_text("a")["sequence_number"] == 3
