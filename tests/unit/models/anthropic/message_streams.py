"""Streams of Anthropic's service and of similar ones, and the deltas that they mean."""

import json
from typing import Any

from tests.support.anthropic_server import (
    PING,
    START,
    block,
    call,
    ending,
    event,
    redacted,
    text,
    thinking,
)
from tests.unit.models.streams import Case

from passback.core.deltas import (
    Finish,
    FinishReason,
    ModelDelta,
    ReasoningBlock,
    ReasoningChunk,
    TextChunk,
    ToolCallChunk,
)
from passback.core.errors import (
    ModelContextExceeded,
    ModelIncomplete,
    ModelRateLimited,
    ModelRejected,
    ModelUnavailable,
)
from passback.core.messages import Reasoning, Usage
from passback.models.anthropic.encoding import Block, Thought

STOP = Finish("stop")
AB = TextChunk("ab")
PREFIX = "p"
USAGE = Usage(input_tokens=10, output_tokens=5, cached_tokens=3)
HEAD_USAGE = Usage(input_tokens=10, output_tokens=1, cached_tokens=3)


def stream(*steps: bytes | list[bytes]) -> bytes:
    return b"".join(step if isinstance(step, bytes) else b"".join(step) for step in steps)


def delta(index: int, kind: str, **fields: object) -> bytes:
    return event("content_block_delta", index=index, delta={"type": kind, **fields})


def start(index: int, kind: str, **fields: object) -> bytes:
    return event("content_block_start", index=index, content_block={"type": kind, **fields})


def stop(index: int) -> bytes:
    return event("content_block_stop", index=index)


def thought(
    words: str, signature: str = "sig", *, after_text: int = 0, after_calls: int = 0
) -> ReasoningBlock:
    whole: Block = {"type": "thinking", "thinking": words, "signature": signature}
    kept = Thought(whole, after_text, after_calls, PREFIX)
    return ReasoningBlock(Reasoning(words, "test", kept.dump()))


def redacted_thought(data: str, *, after_text: int = 0, after_calls: int = 0) -> ReasoningBlock:
    kept = Thought({"type": "redacted_thinking", "data": data}, after_text, after_calls, PREFIX)
    return ReasoningBlock(Reasoning("", "test", kept.dump()))


def usual_case(name: str, stream: bytes, *deltas: ModelDelta) -> Case:
    """Return a case whose stream has the usual head and end."""
    return Case(name, stream, deltas or [AB, STOP], USAGE)


AB_TEXT = text(0, "a", "b")
BROKEN = stream(START, AB_TEXT)

REASONS: list[tuple[str, FinishReason]] = [
    ("stop_sequence", "stop"),
    ("pause_turn", "stop"),
    ("tool_use", "stop"),
    ("something_new", "stop"),
    ("max_tokens", "length"),
    ("model_context_window_exceeded", "length"),
    ("refusal", "refusal"),
]

CASES = [
    # ------------------------------------------------------------ events
    usual_case("a text", stream(START, PING, AB_TEXT, ending())),
    usual_case(
        "pings and comments anywhere", stream(START, PING, b": hm\n\n", AB_TEXT, PING, ending())
    ),
    usual_case("lines end in CRLF", stream(START, AB_TEXT, ending()).replace(b"\n", b"\r\n")),
    usual_case("no event fields", stream(START, AB_TEXT, ending()).replace(b"event: ", b": ")),
    usual_case("no message_stop", stream(START, AB_TEXT, ending()[:1])),
    usual_case("more after message_stop", stream(START, AB_TEXT, ending(), text(1, "c"))),
    usual_case("[DONE] after message_stop", stream(START, AB_TEXT, ending(), b"data: [DONE]\n\n")),
    usual_case(
        "junk",
        stream(
            START,
            b"data: 1\n\ndata: []\n\ndata: {}\n\n",
            event("nonsense"),
            event("content_block_start"),
            event("content_block_delta", index="x", delta=1),
            event("content_block_stop", index=77),
            delta(5, "thinking_delta", thinking="x"),
            delta(5, "input_json_delta", partial_json="x"),
            delta(5, "signature_delta", signature="x"),
            delta(0, "text_delta", text=1),
            event("message_start", message=1),
            event("message_delta", delta=1, usage=1),
            event("message_delta", delta={"stop_reason": 1}, usage={}),
            AB_TEXT,
            ending(),
        ),
    ),
    Case("nothing at all", b""),
    Case("only a head", START, usage=HEAD_USAGE),
    Case("the stream breaks off", BROKEN, [AB], HEAD_USAGE),
    Case("the stream breaks off in an event", BROKEN + b'data: {"ty', [AB], HEAD_USAGE),
    Case("[DONE] alone ends nothing", BROKEN + b"data: [DONE]\n\n", [AB], HEAD_USAGE),
    Case("a message without a word", stream(START, ending()), [STOP], USAGE),
    Case("only an end", event("message_stop"), [STOP]),
    Case(
        "an event that is torn",
        stream(START, AB_TEXT) + b'data: {"type"\n\n' + stream(ending()),
        [AB],
        HEAD_USAGE,
        (ModelIncomplete, "damaged"),
    ),
    # ------------------------------------------------------------ texts
    usual_case("two texts are one", stream(START, text(0, "a"), text(1, "b"), ending())),
    usual_case(
        "a text that is whole at its start", stream(START, start(0, "text", text="ab"), ending())
    ),
    usual_case(
        "a text without its start", stream(START, delta(0, "text_delta", text="ab"), ending())
    ),
    usual_case(
        "citations and unknown deltas",
        stream(
            START,
            start(0, "text", text=""),
            delta(0, "citations_delta", citation={"x": 1}),
            delta(0, "text_delta", text="ab"),
            delta(0, "nonsense"),
            stop(0),
            ending(),
        ),
    ),
    usual_case(
        "blocks of unknown kinds",
        stream(
            START,
            block(0, {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}),
            block(1, {"type": "web_search_tool_result", "content": [{"type": "text"}]}),
            text(2, "ab"),
            ending(),
        ),
    ),
    # ------------------------------------------------------------ thoughts
    usual_case(
        "a thought, then a text",
        stream(START, thinking(0, "hm", "sig"), text(1, "ab"), ending()),
        ReasoningChunk("hm"),
        thought("hm"),
        AB,
        STOP,
    ),
    usual_case(
        "a thought that is not shown",
        stream(START, thinking(0, "", "sig"), text(1, "ab"), ending()),
        thought(""),
        AB,
        STOP,
    ),
    usual_case(
        "a thought that is redacted, between others",
        stream(START, thinking(0, "h", "s1"), redacted(1, "xyz"), thinking(2, "m", "s2"), ending()),
        ReasoningChunk("h"),
        thought("h", "s1"),
        redacted_thought("xyz"),
        ReasoningChunk("m"),
        thought("m", "s2"),
        STOP,
    ),
    usual_case(
        "thoughts between text and calls know their places",
        stream(
            START,
            text(0, "ab"),
            thinking(1, "h", "s1"),
            call(2, "c1", "f", "{}"),
            redacted(3, "xyz"),
            text(4, "c"),
            ending("tool_use"),
        ),
        AB,
        ReasoningChunk("h"),
        thought("h", "s1", after_text=2),
        ToolCallChunk(0, "c1", "f"),
        ToolCallChunk(0, arguments="{"),
        ToolCallChunk(0, arguments="}"),
        redacted_thought("xyz", after_text=2, after_calls=1),
        TextChunk("c"),
        Finish("tool_calls"),
    ),
    usual_case(
        "a thought that is whole at its start",
        stream(START, start(0, "thinking", thinking="hm", signature="sig"), stop(0), ending()),
        ReasoningChunk("hm"),
        thought("hm"),
        STOP,
    ),
    usual_case(
        "a thought that is signed twice has the last signature",
        stream(
            START,
            start(0, "thinking", thinking="hm", signature=""),
            delta(0, "signature_delta", signature="first"),
            delta(0, "signature_delta", signature="sig"),
            stop(0),
            ending(),
        ),
        ReasoningChunk("hm"),
        thought("hm"),
        STOP,
    ),
    usual_case(
        "a thought without its end",
        stream(
            START,
            start(0, "thinking", thinking=""),
            delta(0, "thinking_delta", thinking="hm"),
            delta(0, "signature_delta", signature="sig"),
            text(1, "ab"),
            ending(),
        ),
        ReasoningChunk("hm"),
        AB,
        thought("hm"),
        STOP,
    ),
    usual_case(
        "a thought without a signature is not kept for replay",
        stream(START, thinking(0, "hm", ""), text(1, "ab"), ending()),
        ReasoningChunk("hm"),
        ReasoningBlock(Reasoning("hm", "test")),
        AB,
        STOP,
    ),
    usual_case(
        "a thought without anything is none",
        stream(START, block(0, {"type": "thinking"}), text(1, "ab"), ending()),
    ),
    # ------------------------------------------------------------ calls
    usual_case(
        "two calls",
        stream(START, call(0, "c1", "f", '{"a": 1}'), call(1, "c2", "g", "{}"), ending("tool_use")),
        ToolCallChunk(0, "c1", "f"),
        ToolCallChunk(0, arguments='{"a"'),
        ToolCallChunk(0, arguments=": 1}"),
        ToolCallChunk(1, "c2", "g"),
        ToolCallChunk(1, arguments="{"),
        ToolCallChunk(1, arguments="}"),
        Finish("tool_calls"),
    ),
    usual_case(
        "a call whose arguments are whole at its start",
        stream(START, start(0, "tool_use", id="c1", name="f", input={"a": 1}), stop(0), ending()),
        ToolCallChunk(0, "c1", "f"),
        ToolCallChunk(0, arguments='{"a": 1}'),
        Finish("tool_calls"),
    ),
    usual_case(
        "calls with one index, without ends",
        stream(
            START,
            start(0, "tool_use", id="", name="f", input={}),
            start(0, "tool_use", id=7, name=7),
            delta(0, "input_json_delta", partial_json="{}"),
            ending("end_turn"),
        ),
        ToolCallChunk(0, None, "f"),
        ToolCallChunk(1),
        ToolCallChunk(1, arguments="{}"),
        Finish("tool_calls"),
    ),
    # ------------------------------------------------------------ ends
    *(
        usual_case(
            f"stop_reason {reason}", stream(START, AB_TEXT, ending(reason)), AB, Finish(finish)
        )
        for reason, finish in REASONS
    ),
    # ------------------------------------------------------------ usage
    Case(
        "usage in full, and again in part",
        stream(
            event(
                "message_start",
                message={
                    "usage": {
                        "input_tokens": 1,
                        "cache_creation_input_tokens": 10,
                        "cache_read_input_tokens": 100,
                        "output_tokens": 1,
                    }
                },
            ),
            event(
                "message_delta",
                delta={"stop_reason": "end_turn"},
                usage={
                    "input_tokens": 2,
                    "cache_read_input_tokens": None,
                    "output_tokens": 9,
                    "output_tokens_details": {"thinking_tokens": 4},
                },
            ),
        ),
        [STOP],
        Usage(112, 9, 100, 4),
    ),
    Case(
        "usage that makes no sense",
        stream(event("message_delta", delta={}, usage={"output_tokens": -1}), ending()[1:]),
        [STOP],
        Usage(),
    ),
    # ------------------------------------------------------------ errors in the stream
    *(
        Case(
            f"the error {error}",
            stream(BROKEN, event("error", error=error), ending()),
            [AB],
            HEAD_USAGE,
            (kind, words),
        )
        for error, kind, words in (
            ({"type": "overloaded_error", "message": "sk-secret"}, ModelUnavailable, "middle"),
            ({"type": "api_error"}, ModelUnavailable, "middle"),
            ("nonsense", ModelUnavailable, "middle"),
            ({"type": "rate_limit_error"}, ModelRateLimited, "no more requests"),
            ({"type": "authentication_error"}, ModelRejected, "refused the key"),
            ({"type": "permission_error"}, ModelRejected, "does not allow"),
            ({"type": "request_too_large"}, ModelContextExceeded, "too long"),
            ({"type": "invalid_request_error"}, ModelRejected, "refused the request"),
            (
                {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"},
                ModelContextExceeded,
                "too long",
            ),
        )
    ),
]

WHOLE: dict[str, Any] = {
    "type": "message",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "text", "text": "ab"},
        {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
        "nonsense",
    ],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 2, "output_tokens": 5},
}
WHOLE_BYTES = json.dumps(WHOLE, indent=2).encode()
WHOLE_DELTAS: list[ModelDelta] = [
    ReasoningChunk("hm"),
    thought("hm"),
    AB,
    ToolCallChunk(0, "c1", "f"),
    ToolCallChunk(0, arguments='{"a": 1}'),
    Finish("tool_calls"),
]
