"""The protocol's own examples of builders run as they are written, and what they give is a legal response.

`tests/vectors/agent-api-builders.json` has the code blocks of the protocol's description, by the names of their sections. Their
package is ours here: that is the only word that is changed.
"""

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.agent_api import Json, check_legal

from passback.builders import Event, MessageType, ResponseBuilder

_FILE = Path(__file__).parents[2] / "vectors" / "agent-api-builders.json"
BLOCKS: dict[str, str] = {
    block["section"]: "\n".join(block["code"]).replace(
        "agentscope_runtime.engine.helpers.agent_api_builder", "passback.builders"
    )
    for block in json.loads(_FILE.read_text(encoding="utf-8"))
}


def _run(section: str, *numbers: int, **names: Any) -> dict[str, Any]:
    """Run a block, or some of its statements; returns the names that it leaves."""
    statements = ast.parse(BLOCKS[section]).body
    chosen = [statements[number] for number in numbers] if numbers else statements
    exec(compile(ast.Module(chosen, []), section, "exec"), names)
    return names


def _begun() -> tuple[ResponseBuilder, list[Event]]:
    """A response in progress, and what it tells."""
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
        response, events = _begun()
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
    response, events = _begun()
    _run("7. several contents", response_builder=response)
    response.completed()
    last = check_legal(events)
    assert _contents(last) == [("text", "这是一张图片:"), ("image", IMAGE)]


def test_a_message_of_data_runs_as_written() -> None:
    response, events = _begun()
    message = response.create_message_builder()
    _run("7. data", message_builder=message)
    message.complete()
    response.completed()
    call = {"type": "function_call", "name": "get_weather", "arguments": '{"city": "Beijing"}'}
    whole = {**call, "status": "processing", "result": "sunny"}
    assert _contents(check_legal(events)) == [("data", whole)]
