"""Model services of several protocols behind one interface, and a server that uses one."""

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.support import anthropic_server, model_server, responses_model_server
from tests.support.model_server import Json, ModelServer, Reply, Request, Step, listening
from tests.support.server import running_server
from tests.support.wire import Client, client_of
from typing_extensions import override

Tool = tuple[str, str, str]
"""The id of a call, the tool's name, and its arguments as JSON text."""


@dataclass(frozen=True)
class Dialect:
    """A protocol, and how a service that speaks it says things.

    Attributes:
        kind: what stands before the model's name in the setting.
        path: where answers are asked for.
        serve: makes a service of replies.
        says, calls: whole answers. begins: a text whose answer does not end. ends: the end of such
        an answer. begins_call: a call that does not end, given as its id, its name and the first
        part of its arguments. fault: an error in the middle of an answer. key: the header that the
        key is in, and what stands before the key. said: what a message of a request says, as texts.
    """

    kind: str
    path: str
    serve: Callable[[Iterable[Reply]], ModelServer]
    says: Callable[..., Reply]
    calls: Callable[..., Reply]
    begins: Callable[..., list[Step]]
    ends: Sequence[Step]
    begins_call: Callable[[Tool], list[Step]]
    fault: Step
    key: tuple[str, str]
    said: Callable[[Json], list[str]]

    def asked(self, request: Request) -> list[tuple[str, list[str]]]:
        """The messages of a request, as role and texts."""
        return [(each["role"], self.said(each)) for each in request.shown if "role" in each]

    @override
    def __str__(self) -> str:
        return self.kind


def _openai_call(tool: Tool) -> list[Step]:
    call_id, name, arguments = tool
    function = {"name": name, "arguments": arguments}
    piece = {"index": 0, "id": call_id, "function": function}
    return [model_server.event(tool_calls=[piece])]


def _openai_text(*pieces: str) -> list[Step]:
    return [model_server.event(content=piece) for piece in pieces]


def _openai_said(message: Json) -> list[str]:
    return [message["content"]] if message["content"] else []


OPENAI = Dialect(
    kind="openai",
    path="/v1/chat/completions",
    serve=ModelServer,
    says=model_server.says,
    calls=model_server.calls,
    begins=_openai_text,
    ends=[model_server.event("stop"), model_server.DONE],
    begins_call=_openai_call,
    fault={"error": {"message": "overloaded", "code": 503}},
    key=("authorization", "Bearer "),
    said=_openai_said,
)


def _anthropic_text(*pieces: str) -> list[Step]:
    return [anthropic_server.START, *anthropic_server.text(0, *pieces)[:-1]]


def _anthropic_call(tool: Tool) -> list[Step]:
    return [anthropic_server.START, *anthropic_server.call(0, *tool)[:-1]]


def _anthropic_said(message: Json) -> list[str]:
    return [block["text"] for block in message["content"] if block["type"] == "text"]


ANTHROPIC = Dialect(
    kind="anthropic",
    path="/v1/messages",
    serve=anthropic_server.AnthropicServer,
    says=anthropic_server.says,
    calls=anthropic_server.calls,
    begins=_anthropic_text,
    ends=[anthropic_server.event("content_block_stop", index=0), *anthropic_server.ending()],
    begins_call=_anthropic_call,
    fault=anthropic_server.event(
        "error", error={"type": "overloaded_error", "message": "Overloaded"}
    ),
    key=("x-api-key", ""),
    said=_anthropic_said,
)


def _response_text(*pieces: str) -> list[Step]:
    # all but the events that end the message
    return [*responses_model_server.HEAD, *responses_model_server.text(0, *pieces).steps[:-3]]


def _response_call(tool: Tool) -> list[Step]:
    return [*responses_model_server.HEAD, *responses_model_server.call(0, *tool).steps[:-2]]


RESPONSES = Dialect(
    kind="openai-responses",
    path="/v1/responses",
    serve=responses_model_server.ResponsesModelServer,
    says=responses_model_server.says,
    calls=responses_model_server.calls,
    begins=_response_text,
    ends=[responses_model_server.ending()],
    begins_call=_response_call,
    fault=responses_model_server.event("error", code="server_error", message="Overloaded"),
    key=("authorization", "Bearer "),
    said=_openai_said,
)

DIALECTS = (OPENAI, ANTHROPIC, RESPONSES)

KEY = "sk-test-key"


@dataclass(frozen=True)
class Stage:
    """A client of a server, the model's service behind it, and how that speaks."""

    client: Client
    model: ModelServer
    dialect: Dialect


@asynccontextmanager
async def model_stage(dialect: Dialect) -> AsyncGenerator[Stage]:
    """Leaving it raises AssertionError for a request that the provider would have refused."""
    async with listening(dialect.serve([])) as model:
        environment = {
            "PASSBACK_MODEL": f"{dialect.kind}:mock",
            "PASSBACK_MODEL_BASE_URL": model.base_url,
            "PASSBACK_MODEL_API_KEY": KEY,
        }
        async with (
            running_server(environment=environment) as server,
            client_of(server.url) as client,
        ):
            yield Stage(client, model, dialect)
    model.assert_no_violations()
