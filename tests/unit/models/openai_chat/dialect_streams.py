"""Streams as Gemini and Azure send them at their addresses for chat completions."""

import json
from typing import Any

from tests.unit.models.openai_chat.chat_streams import sse
from tests.unit.models.streams import Case

from passback.core.deltas import (
    Finish,
    ReasoningBlock,
    ReasoningChunk,
    TextChunk,
    ToolCallChunk,
)
from passback.core.messages import Reasoning, Usage

STOP = Finish("stop")
CALLED = Finish("tool_calls")


def lines(*events: Any) -> bytes:
    """Write events without spaces, as both services do, and the end mark."""
    compact = (json.dumps(each, separators=(",", ":"), ensure_ascii=False) for each in events)
    return sse(*compact, "[DONE]")


# ---------------------------------------------------------------- Gemini
def gemini(finish: str | None = None, usage: Any = None, **delta: object) -> Any:
    """A chunk: each has the role, and an index behind the delta; most have no `finish_reason`."""
    choice: dict[str, Any] = {"delta": {**delta, "role": "assistant"}, "index": 0}
    if finish is not None:
        choice["finish_reason"] = finish
    whole = {
        "choices": [choice],
        "created": 1790000000,
        "id": "Wx8faOrjHZmMvdIP",
        "model": "gemini-3-pro",
        "object": "chat.completion.chunk",
    }
    return whole if usage is None else {**whole, "usage": usage}


GEMINI_USAGE = {"completion_tokens": 20, "prompt_tokens": 93, "total_tokens": 360}
THOUGHT: Any = {"google": {"thought": True}}
SIGNED: Any = {"google": {"thought_signature": "EqQBCqEB/signed+=="}}
LIGHT = {"function": {"arguments": '{"on":true}', "name": "light"}, "type": "function"}
DOOR = {"function": {"arguments": "{}", "name": "door"}, "id": "function-call-2"}


def kept(*extras: tuple[int, Any]) -> ReasoningBlock:
    """What comes with calls, as it is kept."""
    return ReasoningBlock(Reasoning("", "test", json.dumps({"calls": extras})))


# ---------------------------------------------------------------- Azure
FILTERS = {
    name: {"filtered": False, "severity": "safe"} for name in ("hate", "self_harm", "violence")
}
PREAMBLE = {
    "choices": [],
    "created": 0,
    "id": "",
    "model": "",
    "object": "",
    "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": FILTERS}],
}


def azure(finish: str | None = None, filters: Any = FILTERS, **delta: object) -> Any:
    choice = {
        "content_filter_results": filters,
        "delta": delta,
        "finish_reason": finish,
        "index": 0,
        "logprobs": None,
    }
    return {
        "choices": [choice],
        "created": 1790000000,
        "id": "chatcmpl-DEJgn",
        "model": "gpt-5-2025-08-07",
        "obfuscation": "70NTC3qxf",
        "object": "chat.completion.chunk",
        "system_fingerprint": None,
        "usage": None,
    }


AZURE_HEAD = (PREAMBLE, azure(filters={}, content="", refusal=None, role="assistant"))
AZURE_USAGE = {
    "choices": [],
    "id": "chatcmpl-DEJgn",
    "object": "chat.completion.chunk",
    "usage": {
        "completion_tokens": 12,
        "completion_tokens_details": {"reasoning_tokens": 8},
        "prompt_tokens": 30,
        "prompt_tokens_details": {"cached_tokens": 4},
        "total_tokens": 42,
    },
}
LATER_FILTER = {
    "choices": [
        {
            "content_filter_offsets": {"check_offset": 1, "start_offset": 1, "end_offset": 9},
            "content_filter_results": FILTERS,
            "finish_reason": None,
            "index": 0,
        }
    ],
    "id": "",
    "object": "",
}
REPORTED = Usage(30, 12, 4, 8)


def azure_call(index: int, arguments: str, **head: object) -> Any:
    function = {"arguments": arguments, **({"name": head.pop("name")} if head else {})}
    return azure(filters={}, tool_calls=[{"index": index, "function": function, **head}])


CASES = [
    Case(
        "Gemini: a text",
        lines(
            gemini(content="Grüße"),
            gemini(content=" aus Wien."),
            gemini("stop", GEMINI_USAGE, content="", extra_content=SIGNED),
        ),
        [TextChunk("Grüße aus Wien."), STOP],
        Usage(93, 20),
    ),
    Case(
        "Gemini: thoughts, then a text",
        lines(
            gemini(content="<thought>**Light", extra_content=THOUGHT),
            gemini(content="s**\n\nWhich?", extra_content=THOUGHT),
            gemini(content="</thought>It is"),
            gemini("stop", content=" <thought> dark."),
        ),
        [
            ReasoningChunk("**Lights**\n\nWhich?"),
            TextChunk("It is <thought> dark."),
            ReasoningBlock(Reasoning("**Lights**\n\nWhich?", "test", "thought")),
            STOP,
        ],
    ),
    Case(
        "Gemini: a thought that is followed by a text without a role",
        lines(
            gemini(content="<thought>Hm.", extra_content=THOUGHT),
            {"choices": [{"delta": {"content": "</thought>Yes"}, "index": 0}]},
            {"choices": [{"delta": {"content": "."}, "index": 0}]},
        ),
        [
            ReasoningChunk("Hm."),
            TextChunk("Yes."),
            ReasoningBlock(Reasoning("Hm.", "test", "thought")),
            STOP,
        ],
    ),
    Case(
        "Gemini: a text, a thought, and a text",
        lines(
            # so many that an event like them need not be parsed
            *({"choices": [{"delta": {"content": word}, "index": 0}]} for word in "abcdefgh"),
            gemini(content="<thought>Hm.", extra_content=THOUGHT),
            {"choices": [{"delta": {"content": "</thought>i"}, "index": 0}]},
            {"choices": [{"delta": {"content": "j"}, "index": 0}]},
        ),
        [
            TextChunk("abcdefgh"),
            ReasoningChunk("Hm."),
            TextChunk("ij"),
            ReasoningBlock(Reasoning("Hm.", "test", "thought")),
            STOP,
        ],
    ),
    Case(
        "Gemini: two calls at once, the first of them signed, without an index",
        lines(
            gemini(
                tool_calls=[{"extra_content": SIGNED, **LIGHT, "id": "function-call-1"}, DOOR],
            ),
            gemini("stop", GEMINI_USAGE),
        ),
        [
            ToolCallChunk(0, "function-call-1", "light", '{"on":true}'),
            ToolCallChunk(1, "function-call-2", "door", "{}"),
            kept((0, SIGNED)),
            CALLED,
        ],
        Usage(93, 20),
    ),
    Case(
        "Gemini: calls one after the other, behind a thought, all with index 0",
        lines(
            gemini(content="<thought>Hm.", extra_content=THOUGHT),
            gemini(
                content="</thought>",
                tool_calls=[{"extra_content": SIGNED, **LIGHT, "id": "a", "index": 0}],
            ),
            gemini(tool_calls=[{"extra_content": SIGNED, **DOOR, "index": 0}]),
            gemini("tool_calls"),
        ),
        [
            ReasoningChunk("Hm."),
            ToolCallChunk(0, "a", "light", '{"on":true}'),
            ToolCallChunk(1, "function-call-2", "door", "{}"),
            ReasoningBlock(Reasoning("Hm.", "test", "thought")),
            kept((0, SIGNED), (1, SIGNED)),
            CALLED,
        ],
    ),
    Case(
        "Gemini: a signature that comes late, beside a call without a name",
        lines(
            gemini(tool_calls=[{"index": 0, "id": "x", "function": {"arguments": "{}"}}]),
            gemini(tool_calls=[{"index": 1, "id": "a", **LIGHT}]),
            gemini(tool_calls=[{"index": 1, "extra_content": SIGNED}]),
            gemini(tool_calls=[{"index": 1, "extra_content": "nonsense"}]),
            gemini("stop"),
        ),
        [
            ToolCallChunk(0, "x", None, "{}"),
            ToolCallChunk(1, "a", "light", '{"on":true}'),
            ToolCallChunk(1),
            ToolCallChunk(1),
            kept((0, SIGNED)),
            CALLED,
        ],
    ),
    Case(
        "Azure: a text",
        lines(
            *AZURE_HEAD,
            azure(content="It is"),
            LATER_FILTER,
            azure(content=" dark."),
            azure("stop", {}),
            AZURE_USAGE,
        ),
        [TextChunk("It is dark."), STOP],
        REPORTED,
    ),
    Case(
        "Azure: two calls",
        lines(
            *AZURE_HEAD,
            azure_call(0, "", name="light", id="call_a", type="function"),
            azure_call(0, '{"on":'),
            azure_call(0, "true}"),
            azure_call(1, "", name="door", id="call_b", type="function"),
            azure_call(1, "{}"),
            azure("tool_calls", {}),
            AZURE_USAGE,
        ),
        [
            ToolCallChunk(0, "call_a", "light"),
            ToolCallChunk(0, arguments='{"on":'),
            ToolCallChunk(0, arguments="true}"),
            ToolCallChunk(1, "call_b", "door"),
            ToolCallChunk(1, arguments="{}"),
            CALLED,
        ],
        REPORTED,
    ),
    Case(
        "Azure: an answer that is filtered",
        lines(
            *AZURE_HEAD,
            azure(content="It"),
            azure("content_filter", {"hate": {"filtered": True, "severity": "high"}}),
        ),
        [TextChunk("It"), Finish("refusal")],
    ),
]
