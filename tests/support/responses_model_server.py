"""A scripted model service on this machine: HTTP as OpenAI's Responses API.

It is a `ModelServer` and holds requests to the rules of `responses_model_rules`. It also knows its
own reasoning: an item that comes back edited breaks a rule too.
"""

import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.support.model_server import Json, ModelServer, Reply, Request, Step, listening
from tests.support.responses_model_rules import breaches_of
from typing_extensions import override

USAGE: Json = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 15,
}


# ---------------------------------------------------------------- writing replies
def event(kind: str, **fields: object) -> bytes:
    """One event."""
    data = json.dumps({"type": kind, **fields})
    return f"event: {kind}\ndata: {data}\n\n".encode()


def response(status: str = "in_progress", *output: Json, **fields: object) -> Json:
    return {
        "id": "resp_1",
        "object": "response",
        "status": status,
        "error": None,
        "incomplete_details": None,
        "output": list(output),
        "usage": None,
        **fields,
    }


HEAD = [
    event("response.created", response=response(), sequence_number=0),
    event("response.in_progress", response=response(), sequence_number=1),
]


@dataclass(frozen=True)
class Streamed:
    """An output item: its events, and the item as it is in the end."""

    steps: Sequence[bytes]
    item: Json


def streamed(index: int, start: Json, inner: Iterable[bytes], item: Json) -> Streamed:
    """A whole output item, from its beginning to its end."""
    added = event("response.output_item.added", output_index=index, item=start)
    done = event("response.output_item.done", output_index=index, item=item)
    return Streamed([added, *inner, done], item)


def text(index: int, *pieces: str, phase: str | None = None) -> Streamed:
    """A message, one delta for each piece."""
    return _said(index, "output_text", "text", pieces, phase)


def refusal(index: int, *pieces: str) -> Streamed:
    return _said(index, "refusal", "refusal", pieces, None)


def _said(index: int, kind: str, name: str, pieces: Sequence[str], phase: str | None) -> Streamed:
    item_id = f"msg_{index}"
    at: Json = {"item_id": item_id, "output_index": index, "content_index": 0}
    start: Json = {"type": "message", "id": item_id, "role": "assistant", "status": "in_progress"}
    if phase is not None:
        start["phase"] = phase
    whole = "".join(pieces)
    part: Json = {"type": kind, name: whole, **({"annotations": []} if name == "text" else {})}
    inner = [
        event("response.content_part.added", **at, part={**part, name: ""}),
        *(event(f"response.{kind}.delta", **at, delta=piece, logprobs=[]) for piece in pieces),
        event(f"response.{kind}.done", **at, **{name: whole}),
        event("response.content_part.done", **at, part=part),
    ]
    item = {**start, "status": "completed", "content": [part]}
    return streamed(index, {**start, "content": []}, inner, item)


def reasoning(index: int, encrypted: str, *summaries: str) -> Streamed:
    """Reasoning, with its encrypted content at its end, and a part for each summary."""
    item_id = f"rs_{index}_{encrypted}"
    start: Json = {"type": "reasoning", "id": item_id, "summary": [], "encrypted_content": "part"}
    inner: list[bytes] = []
    for number, summary in enumerate(summaries):
        at: Json = {"item_id": item_id, "output_index": index, "summary_index": number}
        part: Json = {"type": "summary_text", "text": summary}
        middle = len(summary) // 2
        name = "response.reasoning_summary"
        inner += [
            event(f"{name}_part.added", **at, part={**part, "text": ""}),
            event(f"{name}_text.delta", **at, delta=summary[:middle]),
            event(f"{name}_text.delta", **at, delta=summary[middle:]),
            event(f"{name}_text.done", **at, text=summary),
            event(f"{name}_part.done", **at, part=part),
        ]
    parts = [{"type": "summary_text", "text": summary} for summary in summaries]
    item = {**start, "status": None, "summary": parts, "encrypted_content": encrypted}
    return streamed(index, start, inner, item)


def call(index: int, call_id: str, name: str, arguments: str) -> Streamed:
    """A call whose arguments come in two pieces."""
    item_id = f"fc_{index}"
    at: Json = {"item_id": item_id, "output_index": index}
    start: Json = {"type": "function_call", "id": item_id, "call_id": call_id, "name": name}
    middle = len(arguments) // 2
    kind = "response.function_call_arguments"
    inner = [
        event(f"{kind}.delta", **at, delta=arguments[:middle]),
        event(f"{kind}.delta", **at, delta=arguments[middle:]),
        event(f"{kind}.done", **at, arguments=arguments),
    ]
    item = {**start, "arguments": arguments, "status": "completed"}
    return streamed(index, {**start, "arguments": "", "status": "in_progress"}, inner, item)


def ending(*output: Json, status: str = "completed", **fields: object) -> bytes:
    """The end of a response."""
    whole = response(status, *output, **{"usage": USAGE, **fields})
    return event(f"response.{status}", response=whole)


def cut_off(*output: Json, reason: str = "max_output_tokens") -> bytes:
    """The end of a response that is not complete."""
    return ending(*output, status="incomplete", incomplete_details={"reason": reason})


def answer(*items: Streamed) -> Reply:
    """A whole answer of these items."""
    steps = [step for item in items for step in item.steps]
    return Reply([*HEAD, *steps, ending(*(item.item for item in items))])


def says(*pieces: str) -> Reply:
    """A text, one delta for each piece."""
    return answer(text(0, *pieces))


def calls(*tools: tuple[str, str, str]) -> Reply:
    """Calls, each given as its id, its name and the JSON text of its arguments."""
    return answer(*(call(at, *tool) for at, tool in enumerate(tools)))


# ---------------------------------------------------------------- the server
class ResponsesModelServer(ModelServer):
    """Play one reply for each response that is asked for, in order; the last one again and again.

    It cannot keep responses.
    """

    def __init__(self, replies: Iterable[Reply], models: Sequence[str] = ("mock",)) -> None:
        super().__init__(replies, models)
        self._reasoning: dict[str, Json] = {}

    @override
    def breaches_of(self, body: Json) -> Sequence[str]:
        foreign = [
            f"reasoning that is not from here: {item}"
            for item in body["input"]
            if item["type"] == "reasoning" and item != self._reasoning.get(item["id"])
        ]
        return [*breaches_of(body), *foreign]

    @override
    def _answer_to(self, request: Request) -> Reply:
        reply = super()._answer_to(request)
        if "reasoning.encrypted_content" in request.json.get("include", []):
            self._reasoning |= {item["id"]: item for item in reasoning_in(reply.steps)}
        return reply


def reasoning_in(steps: Sequence[Step]) -> list[Json]:
    """The items of reasoning that these steps bring, as they have to come back."""
    framed = (step for step in steps if isinstance(step, bytes) and step.startswith(b"event: "))
    events = (json.loads(step.partition(b"data: ")[2]) for step in framed)
    ended = (each["item"] for each in events if each["type"] == "response.output_item.done")
    return [
        {name: given for name, given in item.items() if name != "status"}
        for item in ended
        if item["type"] == "reasoning"
    ]


@asynccontextmanager
async def responses_model_server(
    *replies: Reply, models: Sequence[str] = ("mock",)
) -> AsyncGenerator[ResponsesModelServer]:
    """A server that plays these.

    Raises:
        AssertionError: on leaving: a request broke a rule.
    """
    async with listening(ResponsesModelServer(replies, models)) as server:
        yield server
    server.assert_no_violations()
