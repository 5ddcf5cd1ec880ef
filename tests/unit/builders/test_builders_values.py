"""The values given to builders: unknown ones are refused at the call, others are copied."""

import ast
import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.agent_api import Json, check_legal

from passback.builders import (
    ContentBuilder,
    Event,
    MessageBuilder,
    MessageType,
    Misuse,
    ResponseBuilder,
    encode,
)


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
def test_a_value_unknown_to_the_protocol_is_refused(
    misuse: Callable[[], object], words: str
) -> None:
    with pytest.raises(Misuse, match=words):
        misuse()


def test_a_part_that_is_refused_leaves_the_message_as_it_was() -> None:
    message = _message()
    with pytest.raises(Misuse):
        message.add_content({"type": "image", "image_url": 5})
    assert message.add_content({"type": "data", "data": {"a": 1}})["index"] == 0


def test_values_are_copied() -> None:
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
def test_a_message_is_announced_first_and_once(first: Callable[[MessageBuilder], object]) -> None:
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


def test_the_announcement_can_be_asked_for_once_even_after_the_first_content() -> None:
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
def test_a_refused_step_announces_nothing(first: Callable[[MessageBuilder], object]) -> None:
    events: list[Event] = []
    response = ResponseBuilder("s", on_event=events.append)
    response.created()
    response.in_progress()
    message = response.create_message_builder()
    with pytest.raises(Misuse):
        first(message)
    assert len(events) == 2
    assert message.create_content_builder().set_text("a")["sequence_number"] == 3


# ---------------------------------------------------------------- the document
_FILE = Path(__file__).parents[2] / "vectors" / "agent-api-builders.json"
BLOCKS: dict[str, str] = {
    block["section"]: "\n".join(block["code"]).replace(
        "agentscope_runtime.engine.helpers.agent_api_builder", "passback.builders"
    )
    for block in json.loads(_FILE.read_text(encoding="utf-8"))
}


def _run(section: str, *numbers: int, **names: Any) -> dict[str, Any]:
    """Run a block, or some of its statements; return the names that it defines."""
    statements = ast.parse(BLOCKS[section]).body
    chosen = [statements[number] for number in numbers] if numbers else statements
    exec(compile(ast.Module(chosen, []), section, "exec"), names)
    return names


def _begun_document() -> tuple[ResponseBuilder, list[Event]]:
    """Return a response in progress, and the list that gets its events."""
    events: list[Event] = []
    response = ResponseBuilder("session_123", on_event=events.append)
    response.created()
    response.in_progress()
    return response, events


def _contents(last: Json) -> list[Any]:
    [message] = last["output"]
    return [(part["type"], part[_FIELD[part["type"]]]) for part in message["content"]]


_FIELD = {"text": "text", "image": "image_url", "data": "data"}
IMAGE = "https://example.com/image.jpg"


def test_all_types_of_messages_are_known() -> None:
    theirs: list[str] = _run("1. message types")["MessageType"].all_values()
    ours = MessageType.all_values()
    assert set(theirs) <= set(ours)
    assert len(theirs) == 14
    for message_type in ours:
        response, events = _begun_document()
        response.create_message_builder("assistant", message_type).complete()
        assert events[2]["type"] == message_type


def test_the_calls_of_each_class_run_in_the_order_of_the_protocol() -> None:
    # the description lists the calls by class, and some of them for parts of another type
    names = _run("2. ResponseBuilder", 0, 1)
    events: list[Event] = []
    names["response_builder"] = response = names["ResponseBuilder"](
        session_id=names["response_builder"].created()["session_id"], on_event=events.append
    )
    names["content"] = {"type": "image", "image_url": IMAGE}
    _step(names, "2. ResponseBuilder", 2, 3, 5)
    _step(names, "2. MessageBuilder", 0)
    _step(names, "2. ContentBuilder", 0, 1, 2, 5)
    _step(names, "2. MessageBuilder", 1)
    for content_type, number in (("image", 3), ("data", 4)):
        message = names["message_builder"]
        names["content_builder"] = message.create_content_builder(content_type)
        _step(names, "2. ContentBuilder", number, 5)
    _step(names, "2. MessageBuilder", 2)
    _step(names, "2. ResponseBuilder", 4)
    assert response.status == "completed"
    assert _contents(check_legal(events)) == [
        ("text", "Hello World"),
        ("image", IMAGE),
        ("image", IMAGE),
        ("data", {"key": "value"}),
    ]


def _step(names: dict[str, Any], section: str, *numbers: int) -> None:
    names |= _run(section, *numbers, **names)


def test_a_whole_stream_is_legal(capsys: pytest.CaptureFixture[str]) -> None:
    _run("3. a whole stream")
    events = [ast.literal_eval(line) for line in capsys.readouterr().out.splitlines()]
    assert _contents(check_legal(events)) == [("text", "Hello World!")]


def test_a_message_of_several_contents_runs_as_written() -> None:
    response, events = _begun_document()
    _run("7. several contents", response_builder=response)
    response.completed()
    last = check_legal(events)
    assert _contents(last) == [("text", "这是一张图片:"), ("image", IMAGE)]


def test_a_message_of_data_runs_as_written() -> None:
    response, events = _begun_document()
    message = response.create_message_builder()
    _run("7. data", message_builder=message)
    message.complete()
    response.completed()
    call = {"type": "function_call", "name": "get_weather", "arguments": '{"city": "Beijing"}'}
    whole = {**call, "status": "processing", "result": "sunny"}
    assert _contents(check_legal(events)) == [("data", whole)]


# ---------------------------------------------------------------- answers that break off
Built = tuple[ResponseBuilder, MessageBuilder, ContentBuilder]


def _begun_at_5() -> ResponseBuilder:
    response = ResponseBuilder("s", "response_1", clock=lambda: 5.9)
    response.created()
    response.in_progress()
    return response


def _partial_message(*texts: str) -> Built:
    """Return a response whose message has a part that is not complete."""
    response = _begun_at_5()
    message = response.create_message_builder(message_id="m")
    message.get_message_data()
    content = message.create_content_builder()
    for text in texts:
        content.add_text_delta(text)
    return response, message, content


TEXT: Event = {"object": "content", "type": "text", "index": 0, "delta": False, "msg_id": "m"}
INCOMPLETE: Event = {
    "object": "message",
    "status": "incomplete",
    "id": "m",
    "type": "message",
    "role": "assistant",
}

# ---------------------------------------------------------------- ends in the middle
ENDS: list[Callable[[ResponseBuilder], Event]] = [
    lambda response: response.failed("c", "m"),
    ResponseBuilder.canceled,
    ResponseBuilder.rejected,
    ResponseBuilder.incomplete,
]


@pytest.mark.parametrize("end", ENDS)
def test_an_early_end_outputs_the_open_message_as_incomplete(
    end: Callable[[ResponseBuilder], Event],
) -> None:
    response, message, content = _partial_message("a", "b")
    last = end(response)
    whole = {**TEXT, "status": "completed", "text": "ab"}
    assert last["output"] == [{**INCOMPLETE, "content": [whole]}]
    assert last["sequence_number"] == 5
    steps: list[Callable[[], object]] = [
        lambda: content.add_text_delta("c"),
        content.complete,
        message.complete,
    ]
    for step in steps:
        with pytest.raises(Misuse, match=r"the response has ended: reset\(\) begins another"):
            step()


def test_a_message_that_ends_between_two_parts_has_the_first_one() -> None:
    response, message, content = _partial_message("a")
    first = content.complete()
    message.create_content_builder("image")
    assert response.canceled()["output"] == [{**INCOMPLETE, "content": [first]}]


def test_a_message_that_was_not_announced_is_in_no_output() -> None:
    response = _begun_at_5()
    response.create_message_builder()
    assert response.failed("c", "m")["output"] == []


def test_an_answer_is_not_complete_while_its_message_is_open() -> None:
    response, message, content = _partial_message("a")
    with pytest.raises(Misuse, match=r"complete\(\) it before the response ends"):
        response.completed()
    content.complete()
    message.complete()
    assert response.completed()["status"] == "completed"


def test_a_refused_end_leaves_the_message_open() -> None:
    response, _, content = _partial_message("a")
    with pytest.raises(Misuse, match="usage is a dict"):
        response.canceled(usage=5)  # type: ignore[arg-type]  # the misuse
    assert content.complete()["text"] == "a"


# ---------------------------------------------------------------- a stream of texts
def _breaks() -> Iterator[str]:
    yield "a"
    raise OSError("the model broke")


def test_a_stream_whose_texts_break_off_ends_its_message_and_can_be_failed() -> None:
    response = ResponseBuilder("s")
    events: list[Event] = []
    with pytest.raises(OSError, match="the model broke"):
        events.extend(response.generate_streaming_response(_breaks()))
    events.append(response.failed("model_failed", "the model broke"))
    last = check_legal(events)
    [message] = last["output"]
    assert (message["status"], message["content"][0]["text"]) == ("incomplete", "a")


def test_a_response_whose_stream_is_abandoned_can_be_cancelled() -> None:
    response = ResponseBuilder("s")
    stream = response.generate_streaming_response(["a", "b"])
    seen = [next(stream)["status"] for _ in range(4)]
    del stream
    last = response.canceled()
    assert (seen[0], last["sequence_number"]) == ("created", 4)
    [message] = last["output"] if isinstance(last["output"], list) else []
    assert isinstance(message, dict)
    assert message["status"] == "incomplete"


def test_a_stream_whose_response_has_ended_raises() -> None:
    response = ResponseBuilder("s")
    stream = response.generate_streaming_response(["a", "b"])
    for _ in range(4):
        next(stream)
    response.canceled()
    with pytest.raises(Misuse, match="the response has ended"):
        next(stream)


def test_texts_that_come_asynchronously_are_refused_at_once() -> None:
    with pytest.raises(Misuse, match="not iterable"):
        ResponseBuilder("s").generate_streaming_response(None)  # type: ignore[arg-type]  # the misuse
    with pytest.raises(Misuse, match="role is one of assistant, user"):
        ResponseBuilder("s").generate_streaming_response([], "robot")  # type: ignore[arg-type]  # the misuse


# ---------------------------------------------------------------- another response
def test_builders_of_a_response_that_was_reset_are_refused() -> None:
    response, message, content = _partial_message("a")
    response.reset()
    response.created()
    response.in_progress()
    other = response.create_message_builder()
    other.get_message_data()
    steps: list[Callable[[], object]] = [
        lambda: content.encode_text_delta("b"),
        content.complete,
        message.complete,
    ]
    for step in steps:
        with pytest.raises(Misuse, match="the response was reset"):
            step()
    assert other.complete()["sequence_number"] == 3
    assert response.completed()["sequence_number"] == 4
