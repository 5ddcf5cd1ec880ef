"""What services stream, and the deltas that it means: the same however the bytes are cut."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from passback.core.deltas import (
    Finish,
    FinishReason,
    ModelDelta,
    ReasoningBlock,
    ReasoningChunk,
    TextChunk,
    ToolCallChunk,
    UsageChunk,
)
from passback.core.errors import (
    ModelError,
    ModelIncomplete,
    ModelRateLimited,
    ModelRejected,
    ModelUnavailable,
)
from passback.core.messages import Reasoning, Usage
from passback.models.openai_chat.calls import MAX_CALLS
from passback.models.openai_chat.decoding import ChatDecoder
from passback.models.openai_chat.events import MAX_EVENT

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
    """Events as a stream; text is written as it is, anything else as JSON."""
    lines = (e if isinstance(e, str) else json.dumps(e, ensure_ascii=False) for e in events)
    return "".join(f"data: {line}{end}" for line in lines).encode()


@dataclass(frozen=True)
class Case:
    id: str
    stream: bytes
    deltas: Sequence[ModelDelta] = ()
    usage: Usage | None = None
    failure: tuple[type[ModelError], str] | None = None
    done: bool = field(default=False)


def text_case(name: str, stream: bytes, text: str = "ab") -> Case:
    """A stream that says a text and stops."""
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
        [
            ReasoningChunk("hm"),
            ReasoningBlock(Reasoning("hm", "test", "reasoning_content")),
            STOP,
        ],
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
            f"finish_reason {said}",
            sse(chunk(content="a"), chunk(said)),
            [TextChunk("a"), Finish(meant)],
        )
        for said, meant in FINISHES
    ),
    *(
        Case(
            f"finish_reason {said} with a call",
            sse(chunk(tool_calls=[CALL]), chunk(said), "[DONE]"),
            [CALLED, Finish(meant)],
        )
        for said, meant in FINISHES_WITH_A_CALL
    ),
    *(
        Case(
            f"finish_reason {said} is a failure",
            sse(chunk(content="a"), chunk(said), "[DONE]"),
            [TextChunk("a")],
            failure=(ModelUnavailable, "broke its answer off"),
        )
        for said in ("error", "abort", "insufficient_system_resource")
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
            ({"code": "context_length_exceeded"}, ModelRejected, "too long"),
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


@dataclass(frozen=True)
class Decoded:
    deltas: list[ModelDelta]
    usage: Usage | None
    failure: tuple[type[ModelError], str] | None


def decode(pieces: Iterable[bytes]) -> Decoded:
    """Feed the pieces; neighbouring texts are joined over batches, of usage the last is taken."""
    decoder = ChatDecoder("test")
    deltas: list[ModelDelta] = []
    for piece in pieces:
        deltas += decoder.feed(piece)
        if decoder.failure or decoder.done:
            break
    if not decoder.failure:
        deltas += decoder.end()
    reports = [delta.usage for delta in deltas if isinstance(delta, UsageChunk)]
    failure = decoder.failure
    return Decoded(
        joined(delta for delta in deltas if not isinstance(delta, UsageChunk)),
        reports[-1] if reports else None,
        (type(failure), failure.message) if failure else None,
    )


def joined(deltas: Iterable[ModelDelta]) -> list[ModelDelta]:
    result: list[ModelDelta] = []
    for delta in deltas:
        match (result[-1] if result else None, delta):
            case (TextChunk(before), TextChunk(text)):
                result[-1] = TextChunk(before + text)
            case (ReasoningChunk(before), ReasoningChunk(text)):
                result[-1] = ReasoningChunk(before + text)
            case _:
                result.append(delta)
    return result


def check(case: Case, decoded: Decoded) -> None:
    assert decoded.deltas == list(case.deltas)
    assert decoded.usage == case.usage
    if case.failure is None or decoded.failure is None:
        assert decoded.failure is case.failure
    else:
        assert decoded.failure[0] is case.failure[0]
        assert case.failure[1] in decoded.failure[1]


every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)


@every_case
def test_a_stream_in_one_piece(case: Case) -> None:
    check(case, decode([case.stream]))


@every_case
def test_a_stream_byte_by_byte(case: Case) -> None:
    check(case, decode(bytes([byte]) for byte in case.stream))


@every_case
def test_a_stream_cut_in_two_anywhere(case: Case) -> None:
    for cut in range(0, len(case.stream), max(1, len(case.stream) // 2000)):
        check(case, decode([case.stream[:cut], case.stream[cut:]]))


@given(st.sampled_from(CASES), st.lists(st.integers(1, 400), max_size=30))
def test_a_stream_in_pieces_of_any_size(case: Case, sizes: list[int]) -> None:
    cuts, at = [0], 0
    cuts.extend(at := at + size for size in sizes)
    pieces = [case.stream[a:b] for a, b in zip(cuts, [*cuts[1:], len(case.stream)], strict=True)]
    check(case, decode(pieces))


@given(st.binary(max_size=300))
def test_any_bytes_at_all_are_decoded_or_refused(data: bytes) -> None:
    decoded = decode([b'data: {"choices":[{"delta":', data, b"}]}\n\n", data])
    assert decoded.failure is None or decoded.failure[0] is ModelIncomplete


# ---------------------------------------------------------------- batches
def test_one_read_is_one_batch_with_its_texts_joined_and_one_usage() -> None:
    decoder = ChatDecoder("test")
    read = sse(
        chunk(content="a"),
        chunk(content="b"),
        {**chunk(reasoning="h"), "usage": {"prompt_tokens": 1}},
        {**chunk(reasoning="m"), "usage": {"prompt_tokens": 2}},
        chunk(tool_calls=[CALL]),
        chunk(content="c"),
    )
    assert decoder.feed(read) == [
        TextChunk("ab"),
        ReasoningChunk("hm"),
        CALLED,
        TextChunk("c"),
        UsageChunk(Usage(2)),
    ]
    assert decoder.feed(b": nothing new\n\n") == []


def test_empty_texts_are_no_deltas() -> None:
    assert (
        ChatDecoder("test").feed(sse(chunk(role="assistant", content=""), chunk(content=""))) == []
    )


def test_size_grows_with_content_only() -> None:
    decoder = ChatDecoder("test")
    for stream, size in (
        (b": ping\n\n", 0),
        (sse(chunk(content=""), {"choices": [], "usage": USAGE}, {"junk": 1}), 0),
        (sse(chunk(content="abc")), 3),
        (sse(chunk(reasoning="de")), 5),
        (sse(chunk(tool_calls=[CALL])), 8),
    ):
        decoder.feed(stream)
        assert decoder.size == size


def test_it_says_when_the_answer_is_complete() -> None:
    decoder = ChatDecoder("test")
    decoder.feed(sse(chunk(content="a")))
    assert (decoder.finished, decoder.done) == (False, False)
    decoder.feed(sse(chunk("stop")))
    assert (decoder.finished, decoder.done) == (True, False)
    decoder.feed(sse("[DONE]"))
    assert (decoder.finished, decoder.done) == (True, True)


# ---------------------------------------------------------------- limits
def test_an_answer_that_is_too_long_fails_after_what_was_good() -> None:
    decoder = ChatDecoder("test", max_answer=10)
    assert decoder.feed(sse(chunk(content="12345"), chunk(content="67890"))) == [
        TextChunk("1234567890")
    ]
    assert decoder.failure is None
    decoder.feed(sse(chunk(content="!"), chunk(content="never seen")))
    assert isinstance(decoder.failure, ModelIncomplete)
    assert "too long" in decoder.failure.message
    assert decoder.finished is False


def test_more_calls_than_make_sense_fail_after_the_good_ones() -> None:
    calls = ({**CALL, "index": n, "id": f"c{n}"} for n in range(MAX_CALLS + 2))
    decoded = decode([sse(*(chunk(tool_calls=[call]) for call in calls), *AB)])
    assert decoded.deltas == [ToolCallChunk(n, f"c{n}", "f", "{}") for n in range(MAX_CALLS)]
    assert decoded.failure == (ModelIncomplete, "the model called too many tools at once")


@pytest.mark.parametrize("line", [b"data: " + b"x" * 1023, b": " + b"x" * 1023, b"x" * 1023])
def test_a_line_that_does_not_end_fails(line: bytes) -> None:
    decoder = ChatDecoder("test")
    fed = 0
    while decoder.failure is None:
        decoder.feed(line)
        fed += len(line)
        assert fed <= MAX_EVENT + len(line)
    assert fed > MAX_EVENT
    assert isinstance(decoder.failure, ModelIncomplete)


def test_an_event_of_endless_lines_fails() -> None:
    decoder = ChatDecoder("test")
    lines = b"data: {\n" * 100_000
    for _ in range(50):
        decoder.feed(lines)
    assert isinstance(decoder.failure, ModelIncomplete)


# ---------------------------------------------------------------- an answer that is not streamed
def whole(*pieces: bytes) -> tuple[list[ModelDelta], ModelError | None]:
    decoder = ChatDecoder("test", whole=True)
    deltas = [delta for piece in pieces for delta in decoder.feed(piece)]
    return [*deltas, *decoder.end()], decoder.failure


def test_an_answer_in_one_object_is_read_as_a_message() -> None:
    message = {"role": "assistant", "content": "ab", "tool_calls": [CALL | {"index": None}]}
    body = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": USAGE}
    data = json.dumps(body, indent=2).encode()
    assert whole(data[:50], data[50:]) == (
        [TextChunk("ab"), CALLED, Finish("tool_calls"), UsageChunk(Usage(7, 5, 3, 2))],
        None,
    )


def test_an_object_that_is_an_error_fails() -> None:
    deltas, failure = whole(b'{"error": {"code": 429}}')
    assert deltas == []
    assert isinstance(failure, ModelRateLimited)


def test_an_object_that_is_too_large_or_none_is_no_answer() -> None:
    assert whole(b"not JSON") == ([], None)
    decoder = ChatDecoder("test", whole=True)
    decoder.feed(b" " * MAX_EVENT)
    assert decoder.failure is None
    decoder.feed(b" ")
    assert isinstance(decoder.failure, ModelIncomplete)
