"""Streams of chat services, and the deltas that they mean."""

import json

from tests.unit.models.streams import Case

from passback.core.deltas import (
    Finish,
    FinishReason,
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

STOP = Finish("stop")

FINISHES: list[tuple[str | None, FinishReason]] = [
    ("stop", "stop"),
    ("length", "length"),
    ("max_tokens", "length"),
    ("MAX_TOKENS", "length"),
    ("content_filter", "refusal"),
    ("SAFETY", "refusal"),
    ("tool_calls", "stop"),
    ("eos", "stop"),
]
FINISHES_WITH_A_CALL: list[tuple[str | None, FinishReason]] = [
    ("stop", "tool_calls"),
    ("tool_calls", "tool_calls"),
    ("length", "length"),
    ("content_filter", "refusal"),
    (None, "tool_calls"),
    ("", "tool_calls"),
]


def chunk(finish: str | None = None, **delta: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def sse(*events: object, end: str = "\n\n") -> bytes:
    """Write events as a stream: text as it is, anything else as JSON."""
    lines = (e if isinstance(e, str) else json.dumps(e, ensure_ascii=False) for e in events)
    return "".join(f"data: {line}{end}" for line in lines).encode()


def text_case(name: str, stream: bytes, text: str = "ab") -> Case:
    """Return a case whose stream has a text and the finish `stop`."""
    return Case(name, stream, [TextChunk(text), STOP])


AB = (chunk(content="a"), chunk(content="b"), chunk("stop"), "[DONE]")
CALL = {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLED = ToolCallChunk(0, "c1", "f", "{}")
USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 5,
    "prompt_tokens_details": {"cached_tokens": 3},
    "completion_tokens_details": {"reasoning_tokens": 2},
}

CASES = [
    # ------------------------------------------------------------ lines and events
    text_case("lines end in LF", sse(*AB)),
    text_case("lines end in CRLF", sse(*AB, end="\r\n\r\n")),
    text_case("lines end in CR", sse(*AB, end="\r\r")),
    text_case("the blank lines are left out", sse(*AB, end="\n")),
    text_case("a byte order mark comes first", b"\xef\xbb\xbf" + sse(*AB)),
    text_case("no space after the colon", sse(*AB).replace(b"data: ", b"data:")),
    text_case("a tab after the colon", sse(*AB).replace(b"data: ", b"data:\t")),
    text_case(
        "comments and other fields", b": ping\n\nevent: x\nid: 1\nretry: 5\ndata\n\n" + sse(*AB)
    ),
    text_case("no blank line after the last event", sse(*AB).removesuffix(b"\n\n")),
    text_case("no [DONE]", sse(*AB[:-1])),
    text_case("no [DONE], no last line end", sse(*AB[:-1]).removesuffix(b"\n\n")),
    text_case("no finish_reason", sse(*AB[:2], "[DONE]")),
    text_case("more after [DONE]", sse(*AB, chunk(content="c"), {"error": "late"})),
    text_case(
        "an event of several data lines",
        b'data: {"choices": [{"delta":\ndata: {"content": "ab"},\r\n'
        b'data: "finish_reason": "stop"}]}\n\n',
    ),
    text_case(
        "line ends of Unicode are text",
        sse(chunk(content="a\u2028b\u2029c\x85d\x0b\x0ce"), chunk("stop")),
        "a\u2028b\u2029c\x85d\x0b\x0ce",
    ),
    text_case(
        "text of many scripts",
        sse(chunk(content="žluťoučký 你好 👋🏽"), "[DONE]"),
        "žluťoučký 你好 👋🏽",
    ),
    text_case(
        "escapes",
        sse(r'{"choices":[{"delta":{"content":"\"\\\n\ud83d\ude00"}}]}', "[DONE]"),
        '"\\\n😀',
    ),
    text_case(
        "bytes that are no UTF-8",
        sse(chunk(content="a?b"), "[DONE]").replace(b"?", b"\xff"),
        "a\ufffdb",
    ),
    text_case(
        "lone surrogates",
        sse(r'{"choices":[{"delta":{"content":"a\ud83db\ude00c"}}]}', "[DONE]"),
        "a\ufffdb\ufffdc",
    ),
    text_case(
        "junk",
        sse("1", "[]", "null", '"x"', "ping", {}, {"choices": None}, {"choices": [1]})
        + sse({"choices": [{"delta": 1}]}, {"choices": [{"delta": {"content": 1}}]}, *AB),
    ),
    Case("nothing at all", b""),
    Case("only comments", b": ping\n\n: ping\n\n"),
    Case("the stream breaks off between events", sse(*AB[:2]), [TextChunk("ab")]),
    Case("the stream breaks off in an event", sse(*AB[:2]) + b'data: {"choi', [TextChunk("ab")]),
    Case("the stream breaks off in [DONE]", sse(*AB[:2]) + b"data: [DO", [TextChunk("ab")]),
    Case(
        "the stream breaks off in an event after the end of the answer",
        sse(*AB[:3]) + b'data: {"us',
        [TextChunk("ab"), STOP],
    ),
    Case("[DONE] and nothing else", sse("[DONE]"), [STOP]),
    Case(
        "an event that is torn",
        sse(*AB[:2], '{"choices": [{"delta"', *AB[2:]),
        [TextChunk("ab")],
        failure=(ModelIncomplete, "damaged"),
    ),
    Case(
        "an event that is nested without end",
        sse('{"a":' * 2000, *AB),
        failure=(ModelIncomplete, "damaged"),
    ),
    # ------------------------------------------------------------ texts
    Case(
        "another answer beside the one that was asked for",
        sse({"choices": [{"index": 1, "delta": {"content": "x"}}]}, *AB),
        [TextChunk("ab"), STOP],
    ),
    Case(
        "a refusal is a text, and an outcome",
        sse(chunk(refusal="I "), chunk(refusal="won't"), chunk("stop"), "[DONE]"),
        [TextChunk("I won't"), Finish("refusal")],
    ),
    Case(
        "content in parts",
        sse(
            chunk(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]),
            chunk(content=[{"type": "text", "text": "a"}, 1, {"type": "text", "text": "b"}]),
            "[DONE]",
        ),
        [
            ReasoningChunk("hm"),
            TextChunk("ab"),
            ReasoningBlock(Reasoning("hm", "test", "thinking")),
            STOP,
        ],
    ),
    *(
        Case(
            f"reasoning in the field {name}",
            sse(chunk(**{name: "h"}), chunk(**{name: "m", "content": "a"}), chunk("stop")),
            [
                ReasoningChunk("hm"),
                TextChunk("a"),
                ReasoningBlock(Reasoning("hm", "test", name)),
                STOP,
            ],
        )
        for name in ("reasoning_content", "reasoning")
    ),
    Case(
        "reasoning in both fields is taken once",
        sse(chunk(reasoning_content="hm", reasoning="hm"), "[DONE]"),
        [ReasoningChunk("hm"), ReasoningBlock(Reasoning("hm", "test", "reasoning_content")), STOP],
    ),
    Case(
        "reasoning that is no text is left out",
        sse(chunk(reasoning={"a": 1}, content="a"), "[DONE]"),
        [TextChunk("a"), STOP],
    ),
    # ------------------------------------------------------------ calls
    Case(
        "text, a call, and their order",
        sse(chunk(content="a"), chunk(tool_calls=[CALL]), chunk("tool_calls"), "[DONE]"),
        [TextChunk("a"), CALLED, Finish("tool_calls")],
    ),
    Case(
        "a call in pieces",
        sse(
            chunk(tool_calls=[{"index": 0, "id": "c1", "function": {"name": "f"}}]),
            chunk(tool_calls=[{"index": 0, "function": {"arguments": '{"a":'}}]),
            chunk(tool_calls=[{"index": 0, "function": {"arguments": " 1}"}}]),
            chunk("tool_calls"),
        ),
        [
            ToolCallChunk(0, "c1", "f"),
            ToolCallChunk(0, arguments='{"a":'),
            ToolCallChunk(0, arguments=" 1}"),
            Finish("tool_calls"),
        ],
    ),
    Case(
        "the older function_call",
        sse(
            chunk(function_call={"name": "f", "arguments": ""}),
            chunk(function_call={"arguments": '{"a":'}),
            chunk(function_call={"arguments": "1}"}),
            chunk("function_call"),
        ),
        [
            ToolCallChunk(0, None, "f"),
            ToolCallChunk(0, arguments='{"a":'),
            ToolCallChunk(0, arguments="1}"),
            Finish("tool_calls"),
        ],
    ),
    Case(
        "calls that are none",
        sse(chunk(tool_calls={"a": 1}), chunk(tool_calls=[1, None]), chunk(function_call=1), *AB),
        [TextChunk("ab"), STOP],
    ),
    # ------------------------------------------------------------ ends
    *(
        Case(
            f"finish_reason {reason}",
            sse(chunk(content="a"), chunk(reason)),
            [TextChunk("a"), Finish(finish)],
        )
        for reason, finish in FINISHES
    ),
    *(
        Case(
            f"finish_reason {reason} with a call",
            sse(chunk(tool_calls=[CALL]), chunk(reason), "[DONE]"),
            [CALLED, Finish(finish)],
        )
        for reason, finish in FINISHES_WITH_A_CALL
    ),
    *(
        Case(
            f"finish_reason {reason} is a failure",
            sse(chunk(content="a"), chunk(reason), "[DONE]"),
            [TextChunk("a")],
            failure=(ModelUnavailable, "broke its answer off"),
        )
        for reason in ("error", "abort", "insufficient_system_resource")
    ),
    # ------------------------------------------------------------ usage
    Case(
        "usage after the end, without choices",
        sse(*AB[:3], {"choices": [], "usage": USAGE}, "[DONE]"),
        [TextChunk("ab"), STOP],
        Usage(7, 5, 3, 2),
    ),
    Case(
        "usage with every chunk: the last counts",
        sse(
            {**chunk(content="a"), "usage": {"completion_tokens": 1}},
            {**chunk(content="b"), "usage": {"completion_tokens": 2}},
            {**chunk("stop"), "usage": None},
        ),
        [TextChunk("ab"), STOP],
        Usage(0, 2),
    ),
    Case(
        "usage with cache hits by another name",
        sse({**chunk("stop"), "usage": {"prompt_tokens": 9, "prompt_cache_hit_tokens": 4}}),
        [STOP],
        Usage(9, 0, 4),
    ),
    Case(
        "usage that makes no sense",
        sse({**chunk("stop"), "usage": {"prompt_tokens": -1, "completion_tokens": "5"}}),
        [STOP],
        Usage(),
    ),
    # ------------------------------------------------------------ errors in the stream
    *(
        Case(
            f"the error {error}",
            sse(chunk(content="a"), {"error": error}, *AB),
            [TextChunk("a")],
            failure=(kind, words),
        )
        for error, kind, words in (
            ("overloaded", ModelUnavailable, "in the middle"),
            ({"message": "sk-secret", "code": 500}, ModelUnavailable, "in the middle"),
            ({"code": 429}, ModelRateLimited, "no more requests"),
            ({"type": "rate_limit_error", "code": None}, ModelRateLimited, "no more requests"),
            ({"code": 401}, ModelRejected, "refused the key"),
            ({"code": "context_length_exceeded"}, ModelContextExceeded, "too long"),
            ({"code": 413}, ModelContextExceeded, "too long"),
            ({"type": "insufficient_quota", "code": "x"}, ModelRejected, "no credit"),
        )
    ),
    Case(
        "an object that is an error",
        sse({"object": "error", "message": "secret", "code": 404}),
        failure=(ModelRejected, "does not know the model"),
    ),
    text_case("an error that is null", sse({"error": None, **chunk(content="ab")}, "[DONE]")),
]
