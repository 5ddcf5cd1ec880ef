"""A scripted model service on this machine: HTTP as Anthropic's Messages API.

It is a `ModelServer` and holds requests to the rules of `anthropic_rules`. It also knows its own
thoughts: one that comes back edited, or behind other words than those that it answered, breaks a
rule too.
"""

import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager

from tests.support.anthropic_rules import THOUGHTS, Json, breaches_of, prefix_of, thought_key
from tests.support.model_server import ModelServer, Reply, Request, Step, listening
from typing_extensions import override


# ---------------------------------------------------------------- writing replies
def event(kind: str, **fields: object) -> bytes:
    """One event."""
    data = json.dumps({"type": kind, **fields})
    return f"event: {kind}\ndata: {data}\n\n".encode()


def block(index: int, start: Json, *deltas: Json) -> list[bytes]:
    """A whole content block."""
    return [
        event("content_block_start", index=index, content_block=start),
        *(event("content_block_delta", index=index, delta=delta) for delta in deltas),
        event("content_block_stop", index=index),
    ]


USAGE: Json = {"input_tokens": 7, "cache_read_input_tokens": 3, "output_tokens": 1}
START = event(
    "message_start", message={"id": "msg_1", "role": "assistant", "content": [], "usage": USAGE}
)
PING = event("ping")


def ending(reason: str = "end_turn", output: int = 5) -> list[bytes]:
    """The end of a message."""
    return [
        event("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": output}),
        event("message_stop"),
    ]


def text(index: int, *pieces: str) -> list[bytes]:
    deltas = ({"type": "text_delta", "text": piece} for piece in pieces)
    return block(index, {"type": "text", "text": ""}, *deltas)


def thinking(index: int, thought: str, signature: str) -> list[bytes]:
    start = {"type": "thinking", "thinking": "", "signature": ""}
    delta = {"type": "thinking_delta", "thinking": thought}
    return block(index, start, delta, {"type": "signature_delta", "signature": signature})


def redacted(index: int, data: str) -> list[bytes]:
    return block(index, {"type": "redacted_thinking", "data": data})


def call(index: int, call_id: str, name: str, arguments: str) -> list[bytes]:
    """A call whose arguments come in two pieces."""
    start = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    middle = len(arguments) // 2
    pieces = ("", arguments[:middle], arguments[middle:])
    return block(index, start, *({"type": "input_json_delta", "partial_json": p} for p in pieces))


def message(*blocks: Iterable[bytes], reason: str = "end_turn") -> Reply:
    """A whole answer of these blocks."""
    return Reply([START, PING, *(step for steps in blocks for step in steps), *ending(reason)])


def says(*pieces: str) -> Reply:
    """A text, one delta for each piece."""
    return message(text(0, *pieces))


def calls(*tools: tuple[str, str, str]) -> Reply:
    """Calls, each given as its id, its name and the JSON text of its arguments."""
    return message(*(call(at, *tool) for at, tool in enumerate(tools)), reason="tool_use")


# ---------------------------------------------------------------- the server
class AnthropicServer(ModelServer):
    """Play one reply for each message that is asked for, in order; the last one again and again."""

    def __init__(self, replies: Iterable[Reply], models: Sequence[str] = ("mock",)) -> None:
        super().__init__(replies, models)
        self._thoughts: dict[str, tuple[Json, str]] = {}

    @override
    def breaches_of(self, body: Json) -> Sequence[str]:
        return [*breaches_of(body), *self._breaches_of_thoughts(body)]

    @override
    def _answer_to(self, request: Request) -> Reply:
        reply = super()._answer_to(request)
        body = request.json
        prefix = prefix_of(body, len(body["messages"]))
        for thought in thoughts_in(reply.steps):
            self._thoughts[thought_key(thought)] = (thought, prefix)
        return reply

    def _breaches_of_thoughts(self, body: Json) -> Iterable[str]:
        for at, each in enumerate(body["messages"]):
            for thought in (b for b in each["content"] if b["type"] in THOUGHTS):
                own, prefix = self._thoughts.get(thought_key(thought), ({}, ""))
                if thought != own:
                    yield f"message {at}: a thought that was never thought: {thought}"
                elif prefix != prefix_of(body, at) and "thinking" not in body:
                    yield f"message {at}: a thought that is bound to other words: {thought}"


def thoughts_in(steps: Sequence[Step]) -> list[Json]:
    """The blocks of thinking that these steps bring, whole."""
    blocks: dict[int, Json] = {}
    thoughts: list[Json] = []
    framed = (step for step in steps if isinstance(step, bytes) and step.startswith(b"event: "))
    for event in (json.loads(step.partition(b"data: ")[2]) for step in framed):
        match event["type"], event.get("index"):
            case "content_block_start", index:
                blocks[index] = dict(event["content_block"])
            case "content_block_delta", index:
                delta = event["delta"]
                for name in delta.keys() & {"thinking", "signature"}:
                    blocks[index][name] += delta[name]
            case "content_block_stop", index if blocks[index]["type"] in THOUGHTS:
                thoughts.append(blocks[index])
            case _:
                pass
    return thoughts


@asynccontextmanager
async def anthropic_server(
    *replies: Reply, models: Sequence[str] = ("mock",)
) -> AsyncGenerator[AnthropicServer]:
    """A server that plays these.

    Raises:
        AssertionError: on leaving: a request broke a rule.
    """
    async with listening(AnthropicServer(replies, models)) as server:
        yield server
    server.assert_no_violations()
