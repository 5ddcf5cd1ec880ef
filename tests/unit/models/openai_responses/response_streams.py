"""Streams of OpenAI's Responses API and of similar ones, and the deltas that they mean."""

import json
from typing import Any

from tests.support.responses_model_server import (
    USAGE,
    Streamed,
    call,
    cut_off,
    ending,
    event,
    reasoning,
    refusal,
    response,
    streamed,
    text,
)
from tests.unit.models.streams import Case

from passback.core.deltas import (
    Finish,
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
from passback.models.openai_responses.encoding import Item, KeptItem, phase_marker

STOP = Finish("stop")
CALLED = Finish("tool_calls")
AB = TextChunk("ab")
REPORTED = Usage(input_tokens=10, output_tokens=5, cached_tokens=3, reasoning_tokens=2)


def stream(*steps: bytes | list[bytes] | Streamed) -> bytes:
    pieces: list[bytes] = []
    for step in steps:
        match step:
            case Streamed():
                pieces += step.steps
            case bytes():
                pieces.append(step)
            case _:
                pieces += step
    return b"".join(pieces)


def added(index: int | None, **item: object) -> bytes:
    return event("response.output_item.added", output_index=index, item=item)


def done(index: int | None, **item: object) -> bytes:
    return event("response.output_item.done", output_index=index, item=item)


def said(delta: object, **fields: object) -> bytes:
    return event("response.output_text.delta", delta=delta, **fields)


def argued(delta: object, **fields: object) -> bytes:
    return event("response.function_call_arguments.delta", delta=delta, **fields)


def thought(delta: object, kind: str = "reasoning_summary_text", **fields: object) -> bytes:
    return event(f"response.{kind}.delta", delta=delta, **fields)


def kept(
    words: str, *summaries: str, index: int = 0, text: int = 0, calls: int = 0, sealed: str = "xyz"
) -> ReasoningBlock:
    """Encrypted reasoning as it is kept, with its place."""
    parts: Any = [{"type": "summary_text", "text": each} for each in summaries]
    item: Item = {"type": "reasoning", "summary": parts, "id": f"rs_{index}_{sealed}"}
    whole = KeptItem(item | {"encrypted_content": sealed}, text, calls)
    return ReasoningBlock(Reasoning(words, "test", whole.dump()))


def phased(phase: str | None, text: int = 0) -> ReasoningBlock:
    return ReasoningBlock(Reasoning("", "test", phase_marker(phase, text, 0).dump()))


def usual_case(name: str, stream: bytes, *deltas: ModelDelta) -> Case:
    """Return a case whose stream has the usual usage at its end."""
    return Case(name, stream, deltas or [AB, STOP], REPORTED)


def called(slot: int, call_id: str | None, name: str | None, *pieces: str) -> list[ModelDelta]:
    arguments = (ToolCallChunk(slot, arguments=piece) for piece in pieces)
    return [ToolCallChunk(slot, call_id, name), *arguments]


AB_TEXT = text(0, "a", "b")
HEAD = [event("response.created", response={"status": "in_progress"})]
BROKEN = stream(HEAD, said("ab"))
HIDDEN = {"type": "reasoning", "id": "rs_0_xyz", "summary": [], "encrypted_content": "xyz"}
MESSAGE = {
    "type": "message",
    "id": "m",
    "content": [{"type": "output_text", "text": "a"}, {"type": "output_text", "text": "b"}],
}
CALL = {"type": "function_call", "id": "f", "call_id": "c1", "name": "f", "arguments": "{}"}

CASES = [
    # ------------------------------------------------------------ events
    usual_case("a text", stream(HEAD, AB_TEXT, ending(AB_TEXT.item))),
    usual_case("no head", stream(AB_TEXT, ending())),
    usual_case("[DONE] behind the end", stream(HEAD, AB_TEXT, ending(), b"data: [DONE]\n\n")),
    usual_case("lines end in CRLF", stream(HEAD, AB_TEXT, ending()).replace(b"\n", b"\r\n")),
    usual_case("no event fields", stream(HEAD, AB_TEXT, ending()).replace(b"event: ", b": ")),
    usual_case("comments anywhere", stream(HEAD, b": hm\n\n", AB_TEXT, b":\n\n", ending())),
    usual_case("more behind the end", stream(HEAD, AB_TEXT, ending(), text(1, "c"), ending())),
    usual_case(
        "the background", stream(event("response.queued", response=response()), AB_TEXT, ending())
    ),
    usual_case(
        "junk",
        stream(
            b"data: 1\n\ndata: []\n\ndata: {}\n\n",
            event("nonsense"),
            event("response.created", response=7),
            event("response.created", response=response("completed")),
            event("response.unknown", response={"usage": 7, "status": "failed"}),
            event("response.completed", response=7),
            event("response.completed"),
            event("response.output_item.added", item=7),
            added(0, type=["message"]),
            done(None),
            done(7, type={}),
            argued("{}", output_index=3),
            said(1, output_index=0),
            said("", output_index=0),
            thought(7),
            event("response.web_search_call.searching", item_id="ws", output_index=9),
            AB_TEXT,
            ending(7, "x"),  # type: ignore[arg-type]
        ),
    ),
    Case("nothing at all", b""),
    Case("only a head", stream(HEAD)),
    Case("the stream breaks off", BROKEN, [AB]),
    Case("the stream breaks off in an event", BROKEN + b'data: {"ty', [AB]),
    Case("[DONE] alone ends nothing", BROKEN + b"data: [DONE]\n\n", [AB]),
    usual_case("a response without a word", stream(HEAD, ending()), STOP),
    Case(
        "an event that is torn",
        BROKEN + b'data: {"type"\n\n' + ending(),
        [AB],
        failure=(ModelIncomplete, "damaged"),
    ),
    # ------------------------------------------------------------ texts
    usual_case("a text without its beginning", stream(said("a"), said("b"), ending())),
    usual_case(
        "a text whose beginning comes twice",
        stream(AB_TEXT.steps[0], said("a", item_id="msg_0"), AB_TEXT.steps[0], said("b"), ending()),
    ),
    usual_case("a text that comes whole at its end", stream(HEAD, done(0, **MESSAGE), ending())),
    usual_case("a text that comes whole in the response", stream(HEAD, ending(MESSAGE))),
    usual_case(
        "a text that has begun and is in the response", stream(added(0, **MESSAGE), ending(MESSAGE))
    ),
    usual_case(
        "a text that has another id and place in the response",
        stream(HEAD, AB_TEXT, ending({"type": "web_search_call"}, MESSAGE)),
    ),
    usual_case(
        "two messages",
        stream(HEAD, text(0, "a"), text(1, "b", "c"), ending()),
        TextChunk("a\n\nbc"),
        STOP,
    ),
    usual_case(
        "a message whose last event comes twice",
        stream(HEAD, AB_TEXT, AB_TEXT.steps[-1], ending(AB_TEXT.item)),
    ),
    usual_case(
        "phases, where they change",
        stream(
            text(0, "a", phase="commentary"),
            text(1, "b", phase="commentary"),
            text(2, "c", phase="final_answer"),
            text(3, "d"),
            ending(),
        ),
        phased("commentary"),
        TextChunk("a\n\nb"),
        phased("final_answer", 4),
        TextChunk("\n\nc"),
        phased(None, 7),
        TextChunk("\n\nd"),
        STOP,
    ),
    usual_case(
        "items of other kinds",
        stream(
            HEAD,
            streamed(0, {"type": "web_search_call", "id": "ws"}, [], {"type": "web_search_call"}),
            text(1, "ab"),
            streamed(2, {"type": "custom_tool_call"}, [], {"type": "custom_tool_call"}),
            ending({"type": "image_generation_call", "result": "x"}),
        ),
    ),
    # ------------------------------------------------------------ reasoning
    usual_case(
        "reasoning, then a text",
        stream(HEAD, reasoning(0, "xyz", "Hm.", "So."), text(1, "ab"), ending()),
        ReasoningChunk("Hm.\n\nSo."),
        kept("Hm.\n\nSo.", "Hm.", "So."),
        AB,
        STOP,
    ),
    usual_case(
        "reasoning that is not shown",
        stream(HEAD, reasoning(0, "xyz"), text(1, "ab"), ending()),
        kept(""),
        AB,
        STOP,
    ),
    usual_case(
        "reasoning between text and calls knows its places",
        stream(
            text(0, "ab"),
            reasoning(1, "s1"),
            call(2, "c1", "f", "{}"),
            reasoning(3, "s2"),
            call(4, "c2", "g", "{}"),
            ending(),
        ),
        AB,
        kept("", index=1, text=2, sealed="s1"),
        *called(0, "c1", "f", "{", "}"),
        kept("", index=3, text=2, calls=1, sealed="s2"),
        *called(1, "c2", "g", "{", "}"),
        CALLED,
    ),
    usual_case(
        "reasoning that comes whole",
        stream(done(0, **HIDDEN | {"summary": [{"text": "Hm."}, {"text": "So."}, 7]}), ending()),
        ReasoningChunk("Hm.\n\nSo."),
        kept("Hm.\n\nSo.", "Hm.", "So."),
        STOP,
    ),
    usual_case(
        "reasoning whose end is in the response",
        stream(thought("Hm."), ending(HIDDEN)),
        ReasoningChunk("Hm."),
        kept("Hm."),
        STOP,
    ),
    usual_case(
        "reasoning whose end is missing",
        stream(added(0, **HIDDEN), thought("H"), thought("m.", item_id="?"), ending()),
        ReasoningChunk("Hm."),
        ReasoningBlock(Reasoning("Hm.", "test")),
        STOP,
    ),
    usual_case(
        "reasoning that goes on behind its end",
        stream(HEAD, reasoning(0, "xyz", "Hm."), thought("x", output_index=0), ending()),
        ReasoningChunk("Hm."),
        kept("Hm.", "Hm."),
        STOP,
    ),
    usual_case(
        "reasoning that is not encrypted is kept with its content",
        stream(
            added(0, type="reasoning", id="rs"),
            thought("H", "reasoning_text", content_index=0),
            thought("m", "reasoning", content_index=0),
            done(0, type="reasoning", id="rs", content=[{"type": "?", "text": "Hm"}]),
            ending(),
        ),
        ReasoningChunk("Hm"),
        ReasoningBlock(
            Reasoning(
                "Hm",
                "test",
                KeptItem(
                    {
                        "type": "reasoning",
                        "summary": [],
                        "id": "rs",
                        "content": [{"type": "reasoning_text", "text": "Hm"}],
                    },
                    0,
                    0,
                ).dump(),
            )
        ),
        STOP,
    ),
    usual_case(
        "reasoning with nothing that could go back, or nothing at all",
        stream(
            done(0, type="reasoning", id="a", encrypted_content="", summary=[{"text": "Hm."}]),
            done(1, type="reasoning", id="b", encrypted_content=7, summary="x"),
            ending(),
        ),
        ReasoningChunk("Hm."),
        ReasoningBlock(Reasoning("Hm.", "test")),
        STOP,
    ),
    # ------------------------------------------------------------ calls
    usual_case(
        "two calls",
        stream(HEAD, call(0, "c1", "f", '{"a": 1}'), call(1, "c2", "g", "{}"), ending()),
        *called(0, "c1", "f", '{"a"', ": 1}"),
        *called(1, "c2", "g", "{", "}"),
        CALLED,
    ),
    usual_case(
        "two calls at once",
        stream(
            added(0, **CALL),
            added(1, **CALL | {"id": "g", "call_id": "c2", "name": "g"}),
            argued("{", output_index=0, item_id="f"),
            argued("{ ", output_index=1, item_id="g"),
            argued("}", output_index=0, item_id="f"),
            argued("}", output_index=1, item_id="g"),
            ending(),
        ),
        ToolCallChunk(0, "c1", "f"),
        ToolCallChunk(1, "c2", "g"),
        ToolCallChunk(0, arguments="{"),
        ToolCallChunk(1, arguments="{ "),
        ToolCallChunk(0, arguments="}"),
        ToolCallChunk(1, arguments="}"),
        CALLED,
    ),
    usual_case(
        "the index of all calls is 0",
        stream(
            added(0, **CALL),
            added(0, **CALL | {"id": "g", "call_id": "c2"}),
            argued("{}", output_index=0, item_id="f"),
            argued("{ }", output_index=0, item_id="g"),
            done(0, **CALL),
            done(0, **CALL | {"id": "g", "call_id": "c2"}),
            ending(),
        ),
        ToolCallChunk(0, "c1", "f"),
        ToolCallChunk(1, "c2", "f"),
        ToolCallChunk(0, arguments="{}"),
        ToolCallChunk(1, arguments="{ }"),
        CALLED,
    ),
    usual_case(
        "the index is right at the beginnings of calls alone",
        stream(
            added(0, **CALL),
            added(1, **CALL | {"id": "g", "call_id": "c2"}),
            argued("{ }", output_index=0, item_id="g"),
            argued("{}", output_index=1, item_id="f"),
            ending(),
        ),
        ToolCallChunk(0, "c1", "f"),
        ToolCallChunk(1, "c2", "f"),
        ToolCallChunk(1, arguments="{ }"),
        ToolCallChunk(0, arguments="{}"),
        CALLED,
    ),
    usual_case(
        "the ids of items differ in each event",
        stream(
            added(0, **CALL),
            added(1, **CALL | {"id": "g", "call_id": "c2"}),
            argued("{}", output_index=0, item_id="h"),
            argued("{ }", output_index=1, item_id="i"),
            done(0, **CALL | {"id": "j"}),
            done(1, **CALL | {"id": "k"}),
            ending(CALL | {"id": "l"}, CALL | {"id": "m"}),
        ),
        ToolCallChunk(0, "c1", "f"),
        ToolCallChunk(1, "c2", "f"),
        ToolCallChunk(0, arguments="{}"),
        ToolCallChunk(1, arguments="{ }"),
        CALLED,
    ),
    usual_case(
        "items without ids and indices belong to the newest",
        stream(
            added(None, **CALL | {"id": None}),
            argued("{}"),
            done(None, **CALL | {"id": None}),
            added(None, **CALL | {"id": "", "call_id": "c2"}),
            argued("{ }"),
            ending(),
        ),
        *called(0, "c1", "f", "{}"),
        *called(1, "c2", "f", "{ }"),
        CALLED,
    ),
    usual_case(
        "calls that come whole, with one index",
        stream(done(0, **CALL), done(0, **CALL | {"id": "g", "call_id": "c2"}), ending()),
        *called(0, "c1", "f", "{}"),
        *called(1, "c2", "f", "{}"),
        CALLED,
    ),
    usual_case(
        "calls that come whole in the response, beside a text",
        stream(HEAD, AB_TEXT, ending(AB_TEXT.item, CALL, CALL | {"id": "g", "call_id": "c2"})),
        AB,
        *called(0, "c1", "f", "{}"),
        *called(1, "c2", "f", "{}"),
        CALLED,
    ),
    usual_case(
        "a call whose name and id come late",
        stream(
            added(0, type="function_call", id="f", call_id=7, name=""),
            argued("{}", item_id="f"),
            done(0, **CALL),
            ending(),
        ),
        *called(0, None, None, "{}"),
        ToolCallChunk(0, "c1", "f"),
        CALLED,
    ),
    usual_case(
        "a call that goes on behind its end",
        stream(HEAD, call(0, "c1", "f", "{}"), argued("x", item_id="fc_0"), ending()),
        *called(0, "c1", "f", "{", "}"),
        CALLED,
    ),
    usual_case(
        "a call whose arguments are in their last event alone",
        stream(
            added(0, **CALL | {"arguments": ""}),
            event("response.function_call_arguments.done", output_index=0, arguments="{}"),
            ending(),
        ),
        *called(0, "c1", "f"),
        CALLED,
    ),
    # ------------------------------------------------------------ ends
    usual_case("a refusal", stream(HEAD, refusal(0, "a", "b"), ending()), AB, Finish("refusal")),
    usual_case(
        "a refusal that comes whole",
        stream(ending({"type": "message", "content": [{"type": "refusal", "refusal": "ab"}]})),
        AB,
        Finish("refusal"),
    ),
    usual_case(
        "a refusal beside a call",
        stream(HEAD, refusal(0, "ab"), call(1, "c1", "f", "{}"), ending()),
        AB,
        *called(0, "c1", "f", "{", "}"),
        CALLED,
    ),
    usual_case("no tokens left", stream(BROKEN, cut_off()), AB, Finish("length")),
    usual_case(
        "no tokens left for the reasoning",
        stream(HEAD, cut_off(HIDDEN)),
        kept(""),
        Finish("length"),
    ),
    usual_case("a filter", stream(BROKEN, cut_off(reason="content_filter")), AB, Finish("refusal")),
    usual_case("any other reason", stream(BROKEN, cut_off(reason="steered")), AB, Finish("length")),
    usual_case(
        "no details",
        stream(BROKEN, ending(status="incomplete", incomplete_details=7)),
        AB,
        Finish("length"),
    ),
    usual_case(
        "complete, and not by its status",
        stream(
            BROKEN,
            event("response.completed", response=response("incomplete", usage=USAGE)),
        ),
        AB,
        Finish("length"),
    ),
    usual_case(
        "complete, and still at it",
        stream(BROKEN, event("response.completed", response=response(usage=USAGE))),
    ),
    *(
        Case(
            name,
            BROKEN + end,
            [AB],
            REPORTED,
            (ModelUnavailable, "broke its answer off"),
        )
        for name, end in (
            ("cancelled", ending(status="cancelled")),
            (
                "cancelled, by its status",
                event("response.incomplete", response=response("cancelled", usage=USAGE)),
            ),
        )
    ),
    # ------------------------------------------------------------ usage
    Case(
        "usage that makes no sense",
        stream(ending(usage={"input_tokens": -1, "output_tokens": "x", "total_tokens": 7})),
        [STOP],
        Usage(),
    ),
    Case("no usage", stream(ending(usage=None)), [STOP]),
    # ------------------------------------------------------------ errors in the stream
    *(
        Case(f"failed with {error}", stream(BROKEN, failed, ending()), [AB], usage, (kind, words))
        for error, kind, words in (
            ({"code": "server_error", "message": "sk-secret"}, ModelUnavailable, "middle"),
            ({"code": None, "message": None}, ModelUnavailable, "middle"),
            ({"code": "rate_limit_exceeded"}, ModelRateLimited, "no more requests"),
            ({"code": "too_many_requests"}, ModelRateLimited, "no more requests"),
            ({"code": "insufficient_quota"}, ModelRejected, "no credit"),
            ({"code": "context_length_exceeded"}, ModelContextExceeded, "too long"),
            (
                {"code": "x", "message": "Your input exceeds the context window of this model."},
                ModelContextExceeded,
                "too long",
            ),
            ({"code": "invalid_prompt"}, ModelRejected, "refused the content"),
            ({"code": "image_content_policy_violation"}, ModelRejected, "refused the content"),
            ({"code": "invalid_base64_image"}, ModelRejected, "refused an image"),
        )
        for failed, usage in (
            (event("error", **error), None),
            (event("error", error=error), None),
            (ending(status="failed", error=error), REPORTED),
            (b"data: " + json.dumps({"error": error}).encode() + b"\n\n", None),
        )
    ),
    Case(
        "failed without an error",
        stream(BROKEN, ending(status="failed", error=None)),
        [AB],
        REPORTED,
        (ModelUnavailable, "middle"),
    ),
    Case(
        "an object that is an error",
        stream(BROKEN, b'data: {"object": "error", "code": 429, "message": "x"}\n\n'),
        [AB],
        failure=(ModelRateLimited, "no more requests"),
    ),
]

WHOLE: Item = response(
    "completed",
    HIDDEN | {"summary": [{"type": "summary_text", "text": "Hm."}], "status": "completed"},
    MESSAGE,
    CALL,
    usage=USAGE,
)
WHOLE_BYTES = json.dumps(WHOLE, indent=2).encode()
WHOLE_DELTAS: list[ModelDelta] = [
    ReasoningChunk("Hm."),
    kept("Hm.", "Hm."),
    AB,
    *called(0, "c1", "f", "{}"),
    CALLED,
]
