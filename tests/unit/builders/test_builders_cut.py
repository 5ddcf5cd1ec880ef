"""The builders where an answer is cut: its end can always be told, and what belongs to another response is dead."""

from collections.abc import Callable, Iterator

import pytest
from tests.support.agent_api import check_legal

from passback.builders import ContentBuilder, Event, MessageBuilder, Misuse, ResponseBuilder

Built = tuple[ResponseBuilder, MessageBuilder, ContentBuilder]


def _begun() -> ResponseBuilder:
    response = ResponseBuilder("s", "response_1", clock=lambda: 5.9)
    response.created()
    response.in_progress()
    return response


def _said(*texts: str) -> Built:
    """A response whose message has a part that is not complete."""
    response = _begun()
    message = response.create_message_builder(message_id="m")
    message.get_message_data()
    content = message.create_content_builder()
    for text in texts:
        content.add_text_delta(text)
    return response, message, content


TEXT: Event = {"object": "content", "type": "text", "index": 0, "delta": False, "msg_id": "m"}
CUT: Event = {
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
def test_an_end_takes_with_it_what_there_is_of_the_open_message(
    end: Callable[[ResponseBuilder], Event],
) -> None:
    response, message, content = _said("a", "b")
    last = end(response)
    whole = {**TEXT, "status": "completed", "text": "ab"}
    assert last["output"] == [{**CUT, "content": [whole]}]
    assert last["sequence_number"] == 5
    steps: list[Callable[[], object]] = [
        lambda: content.add_text_delta("c"),
        content.complete,
        message.complete,
    ]
    for step in steps:
        with pytest.raises(Misuse, match=r"the response has ended: reset\(\) begins another"):
            step()


def test_a_message_between_two_parts_is_cut_after_the_first() -> None:
    response, message, content = _said("a")
    first = content.complete()
    message.create_content_builder("image")
    assert response.canceled()["output"] == [{**CUT, "content": [first]}]


def test_a_message_that_was_not_announced_is_in_no_output() -> None:
    response = _begun()
    response.create_message_builder()
    assert response.failed("c", "m")["output"] == []


def test_an_answer_is_not_complete_while_its_message_is_open() -> None:
    response, message, content = _said("a")
    with pytest.raises(Misuse, match=r"complete\(\) it before the response ends"):
        response.completed()
    content.complete()
    message.complete()
    assert response.completed()["status"] == "completed"


def test_an_end_that_is_refused_cuts_nothing() -> None:
    response, _, content = _said("a")
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


def test_a_stream_that_nobody_reads_on_can_be_cancelled() -> None:
    response = ResponseBuilder("s")
    stream = response.generate_streaming_response(["a", "b"])
    seen = [next(stream)["status"] for _ in range(4)]
    del stream
    last = response.canceled()
    assert (seen[0], last["sequence_number"]) == ("created", 4)
    [message] = last["output"] if isinstance(last["output"], list) else []
    assert isinstance(message, dict)
    assert message["status"] == "incomplete"


def test_a_stream_whose_response_has_ended_meanwhile_only_breaks() -> None:
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
def test_builders_of_a_response_that_was_reset_are_dead() -> None:
    response, message, content = _said("a")
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
