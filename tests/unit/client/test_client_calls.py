"""The calls of an answer, as a tree, and what its model calls used."""

import math
from typing import Any, cast

import httpx
import pytest
from tests.support.python_client import DONE, Script, frame, stream
from tests.unit.client.replies import answer_of

from passback_client import (
    AgentText,
    Answer,
    BadSetup,
    Call,
    Client,
    Interrupt,
    LimitExceeded,
    Limits,
    Location,
    Output,
    Owed,
    OwedCall,
    Reasoning,
    Retry,
    Rewind,
    RunEnd,
    Text,
    Tool,
    ToolAnswer,
    ToolBegin,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
    ToolProgress,
    ToolResult,
    Usage,
)
from passback_client import sync as plain

pytestmark = pytest.mark.anyio


def test_the_calls_of_a_sub_agent_are_nested_in_the_call_of_its_parent() -> None:
    answer = answer_of(
        Text("I ask.", id="a.1-1"),
        ToolCallStart("1", "helper", id="a.1-2"),
        ToolCallArgs("1", '{"task"', id="a.1-3"),
        ToolCallArgs("1", ": 1}", id="a.1-4"),
        ToolCallEnd("1", id="a.1-5"),
        AgentText("1", "I look. ", id="a.1-6"),
        ToolCallStart("2", "find", id="a.1-7", parent_call_id="1"),
        ToolCallStart("3", "zone", id="a.1-8", parent_call_id="2"),
        ToolProgress("2", "half", id="a.1-9", parent_call_id="1"),
        ToolResult("2", "no", is_error=True, synthetic="denied", id="a.1-10", parent_call_id="1"),
        AgentText("1", "Found.", id="a.1-11"),
        ToolResult("1", "Found.", id="a.1-12"),
        ToolCallStart("4", "paint", id="a.1-13"),
    )
    zone = Call("3", "zone", "")
    find = Call(
        "2",
        "find",
        "",
        answered=True,
        result="no",
        is_error=True,
        synthetic="denied",
        progress="half",
        calls=(zone,),
    )
    helper = Call(
        "1",
        "helper",
        '{"task": 1}',
        complete=True,
        answered=True,
        result="Found.",
        agent_text="I look. Found.",
        calls=(find,),
    )
    assert answer.calls == (helper, Call("4", "paint", ""))


def test_a_call_is_shown_as_its_tool_says_and_with_the_time_that_it_took() -> None:
    places = (Location("/a", 3), Location("b"))
    answer = answer_of(
        ToolCallStart("1", "edit", "Edit a file", "edit", id="a.1-1"),
        ToolCallStart("2", "look", id="a.1-2"),
        ToolBegin("1", places, id="a.1-3"),
        ToolBegin("unseen", places, id="a.1-4"),
        ToolResult("1", "done", duration_ms=7, id="a.1-5"),
    )
    edited = Call(
        "1",
        "edit",
        "",
        answered=True,
        result="done",
        title="Edit a file",
        kind="edit",
        began=True,
        locations=places,
        duration_ms=7,
    )
    assert answer.calls == (edited, Call("2", "look", ""))


def test_a_tool_of_this_client_answers_a_call_of_the_run_before() -> None:
    owed = OwedCall("1", "paint", '{"color": "blue"}')
    answer = answer_of(
        Owed((owed,), id="a.1-1"),
        RunEnd("handed-back", id="a.1-2"),
        ToolAnswer("1", "paint", None),
        Text("Done.", id="b.1-1"),
    )
    painted = Call("1", "paint", '{"color": "blue"}', complete=True, answered=True)
    assert answer.calls == (painted,)


def test_a_reader_that_begins_in_the_middle_gets_the_calls_as_far_as_known() -> None:
    answer = answer_of(
        AgentText("1", "On it.", id="a.1-1"),
        Owed((OwedCall("2", "ask", "{}", "approval", parent_call_id="3"),), id="a.1-2"),
        Owed((OwedCall("2", "ask", "{}", "approval", parent_call_id="3"),), id="a.1-3"),
        ToolCallEnd("unseen", id="a.1-4"),
        ToolResult("unseen", "?", id="a.1-5"),
    )
    asked = Call("2", "ask", "{}", complete=True)
    helpers = (
        Call("1", "", "", complete=True, agent_text="On it."),
        Call("3", "", "", complete=True, calls=(asked,)),
    )
    assert answer.calls == helpers


def test_an_interrupted_call_is_complete_and_a_repeated_start_keeps_its_place() -> None:
    answer = answer_of(
        ToolCallStart("1", "rm", id="a.1-1", parent_call_id="1"),
        ToolCallArgs("1", "{}", id="a.1-2"),
        Interrupt("1", "Really?", "approval", "rm", "{}", id="a.1-3"),
        ToolCallStart("2", "ls", id="a.1-4"),
    )
    assert answer.calls == (Call("1", "rm", "{}", complete=True), Call("2", "ls", ""))
    answer.feed(ToolCallStart("1", "cp", id="a.1-5", parent_call_id="2"))
    assert answer.calls == (Call("1", "cp", ""), Call("2", "ls", ""))


def test_a_rewind_removes_calls_usage_and_output_of_its_run_alone() -> None:
    kept = Usage(1, 2, 3, 4, id="a.1-2")
    answer = answer_of(
        ToolCallStart("1", "helper", id="a.1-1"),
        kept,
        RunEnd("handed-back", id="a.1-3"),
        ToolAnswer("1", "helper", "here"),
        AgentText("1", "Once.", id="b.1-1"),
        ToolCallStart("2", "find", id="b.1-2", parent_call_id="1"),
        Usage(9, 9, 9, 9, id="b.1-3"),
        Output({"a": 1}, id="b.1-4"),
        Rewind("b.1-1", id="b.2-1"),
    )
    helper = Call("1", "helper", "", answered=True, result="here", agent_text="Once.")
    assert (answer.calls, answer.model_calls, answer.output) == ((helper,), (kept,), None)


def test_the_model_is_the_last_one_of_the_agent_itself_and_rewinds_restore_it() -> None:
    answer = Answer()
    models: list[str | None] = [answer.model]
    for event in (
        Usage(1, 1, 0, 0, model="small", id="a.1-1"),
        Usage(1, 1, 0, 0, model="other", id="a.1-2", parent_call_id="1"),
        Usage(1, 1, 0, 0, id="a.1-3"),
        RunEnd("handed-back", id="a.1-4"),
        RunEnd("completed", model="large", id="b.1-1"),
        Usage(1, 1, 0, 0, model="void", id="c.1-1"),
        Rewind("c.1-0", id="c.2-1"),
    ):
        answer.feed(event)
        models.append(answer.model)
    assert models == [None, "small", "small", "small", "small", "large", "void", "large"]


def test_usage_is_given_for_each_model_call_and_as_a_sum() -> None:
    one = Usage(1, 2, 3, 4, id="a.1-1")
    two = Usage(10, 20, 30, 40, estimated=True, id="a.1-2", parent_call_id="1")
    answer = answer_of(one, Reasoning("hm", id="a.1-3"), two)
    assert answer.model_calls == (one, two)
    assert answer.usage == Usage(11, 22, 33, 44, estimated=True)
    assert (answer_of(one).usage, answer_of().usage) == (Usage(1, 2, 3, 4), None)


@pytest.mark.parametrize(
    "event",
    [
        ToolCallArgs("1", "12345"),
        AgentText("1", "12345"),
        ToolResult("1", "12345"),
        ToolAnswer("1", "paint", "12345"),
        ToolAnswer("1", "paint", [1, 2]),
        ToolProgress("1", "12345"),
        ToolBegin("1", (Location("12"), Location("345"))),
        Owed((OwedCall("2", "paint", "12345"),)),
    ],
    ids=lambda event: type(event).__name__,
)
def test_the_calls_of_an_answer_are_bounded(event: Any) -> None:
    start = ToolCallStart("1", "paint")
    answer_of(start, event, limits=Limits(call_chars=5))
    with pytest.raises(LimitExceeded, match="calls"):
        answer_of(start, event, limits=Limits(call_chars=4))


USED = {"inputTokens": 1, "outputTokens": 2, "cachedTokens": 0, "reasoningTokens": 0}


@pytest.mark.parametrize("include", [[], ["usage", "agents"]])
async def test_ask_requests_the_usage(include: Any) -> None:
    script = Script(stream(frame("run.1-1", type="usage", **USED), DONE))
    async with Client("http://host", transport=script.transport) as client:
        answer = await client.ask("hi", include=include)
    assert answer.usage == Usage(1, 2, 0, 0)
    needed = ["rewind", "run", "owed", "output"]
    assert script.bodies[0]["include"] == [*needed, *(include or ["usage"])]


# ---------------------------------------------------------------- arguments
ADDRESS = "give the server's address, such as 'http://127.0.0.1:8000'"
EXECUTE = "give a function that takes the arguments and a `ToolContext`"


@pytest.mark.parametrize("kind", [Client, plain.Client])
@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"url": 5}, f"url is 5: {ADDRESS}"),
        ({"url": None}, f"url is None: {ADDRESS}"),
        ({"url": b"http://host"}, f"url is a bytes: {ADDRESS}"),
        ({"url": httpx.URL("http://host")}, f"url is a URL: {ADDRESS}"),
        ({"api_key": 5}, "api_key is 5: give a text, or None"),
        ({"api_key": b"secret"}, "api_key is a bytes: give a text, or None"),
        ({"tools": 5}, "tools is 5: give a list of functions or `Tool`s"),
        ({"tools": "paint"}, "tools is a str: give a list of functions or `Tool`s"),
        ({"tools": {"price": print}}, "tools is a dict: give a list of functions or `Tool`s"),
        (
            {"tools": math.floor},
            "tools is a builtin_function_or_method: give a list of functions or `Tool`s",
        ),
        ({"approve": True}, "approve is True: give a function that takes an `Approval`, or None"),
        ({"claims": "no"}, "claims is a str: give True or False"),
        ({"limits": {"rounds": 3}}, "limits is a dict: give `Limits`, or None"),
        ({"limits": Limits}, "limits is a type: give `Limits`, or None"),
        ({"retry": 3}, "retry is 3: give a `Retry`, or None"),
        (
            {"transport": httpx.HTTPTransport()},
            "transport is a HTTPTransport: give an `httpx.AsyncBaseTransport`, or None",
        ),
    ],
)
def test_an_argument_of_another_kind_is_named(
    kind: type[Client] | type[plain.Client], argument: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadSetup) as caught:
        kind(**{"url": "http://host", **argument})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Limits(rounds=cast("Any", "3")),
            "Limits: rounds is a str: give a whole number of at least 0",
        ),
        (
            lambda: Limits(body_bytes=-1),
            "Limits: body_bytes is -1: give a whole number of at least 0",
        ),
        (
            lambda: Limits(frame_chars=True),
            "Limits: frame_chars is True: give a whole number of at least 0",
        ),
        (
            lambda: Retry(attempts=0),
            "Retry: attempts is 0: give a whole number of at least 1, or None",
        ),
        (lambda: Retry(first=math.nan), "Retry: first is nan: give seconds, at least 0"),
        (
            lambda: Retry(silence=cast("Any", None)),
            "Retry: silence is None: give seconds, at least 0",
        ),
        (lambda: Retry(claim=601), "Retry: claim is 601: give whole seconds, at most 600"),
        (lambda: Tool(cast("Any", 5), "", {}, print), "a tool cannot be named 5"),
        (
            lambda: Tool("t", cast("Any", None), {}, print),
            "tool 't': description is None: give a text",
        ),
        (
            lambda: Tool("t", "", cast("Any", "{}"), print),
            "tool 't': parameters is a str: give a JSON Schema as a dict, or None",
        ),
        (lambda: Tool("t", "", {}, cast("Any", "print")), f"tool 't': execute is a str: {EXECUTE}"),
        (
            lambda: Tool("t", "", {}, print, needs_approval=cast("Any", print)),
            "tool 't': needs_approval is a builtin_function_or_method: give True or False",
        ),
        (
            lambda: Tool("t", "", {}, print, title=cast("Any", 1)),
            "tool 't': title is 1: give a text",
        ),
    ],
)
def test_nested_arguments_are_checked_too(make: Any, message: str) -> None:
    with pytest.raises(BadSetup) as caught:
        make()
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "not an http: or https: address with a host"),
        ("host", "not an http: or https: address with a host"),
        ("localhost:8000", "not an http: or https: address with a host"),
        ("ftp://host", "not an http: or https: address with a host"),
        ("http://", "not an http: or https: address with a host"),
        ("http://a:b", "not a URL"),
        ("http://a:99999", "has a port beyond 65535"),
        ("http://\ud800", "not a URL"),
        ("http://me:pw@host", "contains a user or a password"),
        ("ftp://me:pw@", "contains a user or a password"),
        ("http://host?a", "no query or fragment"),
        ("http://host#a", "no query or fragment"),
    ],
)
def test_a_malformed_address_is_refused(url: str, message: str) -> None:
    with pytest.raises(BadSetup, match=r"^url ") as caught:
        Client(url)
    assert message in str(caught.value)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize("key", ["", "a b", "secret\r\nx: y", "sécret"])
def test_a_key_that_cannot_be_sent_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(BadSetup, match=r"^api_key ") as caught:
        Client("http://host", api_key=key)
    assert "cret" not in str(caught.value)
