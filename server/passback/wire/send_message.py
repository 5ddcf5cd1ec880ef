"""The `/send-message` protocol (AG-Kit style).

A post has the new messages only, and the answer is a stream of events. The client executes its own
tools: their calls end the stream, and the next post brings the results.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypeAlias, assert_never

from pydantic import Field, JsonValue
from starlette.requests import Request
from starlette.types import ASGIApp

from passback.core.errors import InvalidRequest
from passback.core.events import (
    HandedBack,
    Logged,
    Position,
    RunEvent,
    RunFinished,
    TextDelta,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
)
from passback.core.imported import PlacedMessage, imported_arguments, split_history
from passback.core.messages import (
    UNNAMED,
    Answer,
    AssistantMessage,
    CallId,
    HistoryMessage,
    MessageId,
    Owed,
    PostedMessage,
    RunId,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from passback.core.posts import OnBusy, OnDisconnect, Parked, StartRun
from passback.core.questions import Questions
from passback.http.body import read_object, work_on
from passback.http.conversations import posted_conversation
from passback.http.requests import (
    OptionalId,
    PostedId,
    headers_of,
    idempotency_key,
    parse_include,
    validate_model,
)
from passback.http.routing import Endpoint
from passback.http.wires import Services, Wire, WireType
from passback.native.declarations import DeclaredTool, parse_tools
from passback.native.message_context import PostedContext, add_context, read_context
from passback.native.openapi import (
    POST_ERRORS,
    POST_HEADERS,
    REPEATS,
    WAIT,
    describe_operation,
    describe_parameter,
    json_body,
    run_responses,
    schema_reference,
)
from passback.native.parts import (
    MAX_ITEMS,
    Posted,
    PostedContent,
    PostedResult,
    read_content,
    read_result,
    validated_elsewhere,
)
from passback.native.responses import (
    INCLUDABLE,
    NativeEncoder,
    parked_answer,
    requested_format,
    run_answer,
)
from passback.native.submissions import Approval, read_approval
from passback.streams.frames import SseFramer
from passback.streams.sse import last_event_id, last_event_of

_PATHS = ("/send-message", "/v1/aibot/bots/{agentId}/send-message")


class PostedUserMessage(Posted):
    """A message of the user.

    With an `id`, a repeated message is ignored, and other content with the same `id` is refused.
    """

    role: Literal["user"]
    content: PostedContent
    id: PostedId | None = None


class PostedSystemMessage(Posted):
    """A system message. Only where the server's settings allow this role."""

    role: Literal["system"]
    content: PostedContent
    id: PostedId | None = None


class PostedCallFunction(Posted):
    """The function of a call. `arguments` is the text of a JSON object."""

    name: str
    arguments: str


class PostedCall(Posted):
    """A call that the agent made elsewhere. Its `id` is valid in this post only."""

    id: Annotated[str, Field(min_length=1, max_length=256)]
    type: Literal["function"] = "function"
    function: PostedCallFunction


class PostedAssistantMessage(Posted):
    """A message of the agent, as part of a posted history.

    Only in a new conversation, and where the server's settings allow this role.
    """

    role: Literal["assistant"]
    content: PostedContent | None = None
    tool_calls: Annotated[list[PostedCall], Field(fail_fast=True, max_length=MAX_ITEMS)] | None = (
        None
    )
    id: PostedId | None = None


class PostedToolMessage(Posted):
    """The result of a client tool's call: a text, a list of parts, or any other JSON.

    The result of `ask_user` is an `Answers` object.
    """

    role: Literal["tool"]
    content: PostedResult
    tool_call_id: Annotated[str, Field(min_length=1, max_length=256)]
    is_error: bool = False


_PostedMessage: TypeAlias = Annotated[
    PostedUserMessage | PostedSystemMessage | PostedAssistantMessage | PostedToolMessage,
    Field(discriminator="role"),
]


class PostedResume(Posted):
    """The answer to an interrupt: approves or denies the call of that id."""

    interrupt_id: Annotated[str, Field(min_length=1, max_length=256)]
    payload: Annotated[JsonValue, validated_elsewhere(Approval | bool | str)]


class SendMessage(PostedContext):
    """The new messages only: the server keeps the conversation. Unknown keys are ignored."""

    conversation_id: Annotated[str, Field(min_length=1, max_length=256)] | None = Field(
        None,
        description="Missing: a new conversation, named in the header `X-Conversation-Id`; "
        "a repeat with the same `Idempotency-Key` finds it again.",
    )
    messages: Annotated[list[_PostedMessage], Field(fail_fast=True, max_length=MAX_ITEMS)] = []
    tools: list[DeclaredTool] | None = Field(
        None,
        description="The client's tools. They replace the conversation's; without the key "
        "those stay; `[]` clears.",
    )
    resume: Annotated[list[PostedResume], Field(fail_fast=True, max_length=MAX_ITEMS)] | (
        PostedResume | None
    ) = Field(None, description="The answer to an interrupt, or a list of answers.")
    after: OptionalId | None = Field(
        None,
        description="The id of the message that the new ones follow, on any branch of the "
        'conversation; `""`: they are the first ones. What followed it so far stays in the '
        "record as another branch. Without messages, it is answered anew. Missing: they follow "
        "the last message.",
    )
    on_busy: OnBusy | None = Field(
        None,
        description="What a new message means while a run goes on. `reject`: 409. With the other "
        "values it waits in the queue, and two of them stop the run: `interrupt` keeps its partial "
        "answer, `rollback` removes it together with the message that it answered. Missing: the "
        "server's setting.",
    )
    on_disconnect: OnDisconnect | None = Field(
        None,
        description="`cancel`: the run is cancelled when nobody has followed it for a grace time. "
        "Missing: `continue`.",
    )
    include: list[str] = Field(
        default_factory=list,  # faster than `default=[]`, which pydantic copies for each post
        json_schema_extra={"default": []},
        fail_fast=True,
        max_length=100,
        description="More kinds of events: "
        + ", ".join(sorted(INCLUDABLE))
        + ". Any other word is a 422.",
    )


def build(services: Services, /) -> Wire:
    wire = _SendMessage(services)
    return Wire(
        routes=[
            Endpoint(path, wire.send_message, methods=["POST"], query={"POST": ["wait"]})
            for path in _PATHS
        ],
        paths={path: {"post": _describe_post(path)} for path in _PATHS},
        types=(SendMessage, Questions),
    )


WIRE = WireType(build)


class _SendMessage:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def send_message(self, request: Request) -> ASGIApp:
        """Admit the post, then answer with the run that it began or joined."""
        # first: it refuses a client that takes neither form
        asked = requested_format(request)
        limits = self._services.limits
        headers = headers_of(request.scope)
        key, seen = idempotency_key(headers), last_event_id(headers)
        post = validate_model(
            SendMessage, await read_object(request, limits, self._services.bodies)
        )
        include = parse_include(post.include, INCLUDABLE)
        resume = [post.resume] if isinstance(post.resume, PostedResume) else post.resume or []
        approvals = tuple(read_approval(CallId(each.interrupt_id), each.payload) for each in resume)
        # apps name their bot in any case, so an agent without a name answers to all
        is_named = any(self._services.runs.agents())
        agent = request.path_params.get("agentId", "") if is_named else ""
        history, new = await self._read_messages(post, agent)
        after = None if post.after is None else MessageId(post.after)
        answered = [each.call_id for each in (*approvals, *new) if isinstance(each, Answer)]
        conversation = await posted_conversation(
            request, self._services.runs, post.conversation_id, [*answered, *filter(None, [after])]
        )
        messages = add_context(new, await read_context(post, limits, conversation))
        # no `tools` keeps the conversation's, an empty list clears them
        tools = None if post.tools is None else await parse_tools(post.tools, limits, conversation)
        command = StartRun(
            conversation,
            (*approvals, *messages),
            tools,
            idempotency_key=key,
            # ids of the client's only: those made here cannot be repeated
            named=frozenset(filter(None, map(_given_id, post.messages))),
            on_busy=post.on_busy or self._services.on_busy,
            on_disconnect=post.on_disconnect or "continue",
            history=tuple(history),
            after=after,
        )
        started = await self._services.runs.start(command)
        if isinstance(started, Parked):
            return parked_answer(request.scope, asked, started, include=include)
        # a repeated post joins its run: the stream continues after what the client has seen
        since = last_event_of(started, seen)
        return run_answer(self._services, asked, started, include=include, since=since)

    async def _read_messages(
        self, post: SendMessage, agent: str
    ) -> tuple[Sequence[HistoryMessage], Sequence[PostedMessage]]:
        """Return the posted history, and the new messages.

        A post without messages of the agent has no history: all of it is new.
        """
        new: list[PostedMessage] = []
        read: list[PlacedMessage] = []
        for position, posted in enumerate(post.messages):
            place = f"messages.{position}"
            message = self._read_message(place, posted, agent)
            read.append((place, message))
            if not isinstance(message, AssistantMessage):
                new.append(message)
        if len(new) == len(read):
            return (), new
        imported = await work_on(imported_arguments(read), split_history, read)
        return imported.history, imported.new

    def _read_message(self, place: str, posted: _PostedMessage, agent: str) -> HistoryMessage:
        limits = self._services.limits
        if posted.role not in self._services.allow_roles:
            raise InvalidRequest(
                f"{place}: the role {posted.role!r} is not allowed here (PASSBACK_ALLOW_ROLES)"
            )
        match posted:
            case PostedUserMessage(content=content):
                message_id = _given_id(posted)
                return UserMessage(
                    message_id, read_content(content, limits.attachment_bytes), agent
                )
            case PostedSystemMessage(content=content):
                return SystemMessage(
                    _given_id(posted),
                    read_content(content, limits.attachment_bytes),
                )
            case PostedAssistantMessage(content=content, tool_calls=calls):
                # clients write blank content beside calls, where the agent said nothing
                stripped = content if not isinstance(content, str) else content.strip()
                return AssistantMessage(
                    _given_id(posted),
                    read_content(content, limits.attachment_bytes) if content and stripped else "",
                    tuple(
                        ToolCall(CallId(each.id), each.function.name, each.function.arguments)
                        for each in calls or ()
                    ),
                )
            case PostedToolMessage(content=content, tool_call_id=call_id, is_error=is_error):
                result = read_result(content, limits.result_bytes)
                # clients have no id for a result: its call identifies it
                return ToolMessage(UNNAMED, CallId(call_id), result, is_error)
            case _:
                assert_never(posted)


def _given_id(posted: _PostedMessage) -> MessageId:
    """Return the client's id of a message. Results have none: their call identifies them."""
    if isinstance(posted, PostedToolMessage) or posted.id is None:
        return UNNAMED
    return MessageId(posted.id)


_EXAMPLE_POST: Mapping[str, JsonValue] = {
    "conversationId": "6f1c2f8e-3c5b-4b0e-9d39-0f6b8f6c2a51",
    "messages": [{"role": "user", "content": "Change background color to blue"}],
    "tools": [
        {
            "name": "change-background-color",
            "description": "Change the background color of the page.",
            "parameters": {
                "type": "object",
                "properties": {"color": {"type": "string", "enum": ["blue", "green"]}},
                "required": ["color"],
            },
        }
    ],
}


_AGENT_PARAMETER = describe_parameter(
    "agentId",
    "path",
    "The agent's name; `default` is the first one. Any, where the only agent has no name.",
)


def _describe_post(path: str) -> dict[str, JsonValue]:
    run_id, call_id = (
        RunId("run_693FyNLtTkEYVaTmsgaHHib8dHegXHoh9O"),
        CallId("call_693FyNLtTkEYVaTmsgaHHi7FXgdN3QfLF9"),
    )
    arguments = '{"color":"blue"}'
    events: tuple[RunEvent, ...] = (
        TextDelta("On it."),
        ToolCallStarted(call_id, "change-background-color", client=True),
        ToolCallArguments(call_id, arguments),
        ToolCallEnded(call_id),
        RunFinished(HandedBack((Owed(call_id, "change-background-color", arguments),))),
    )
    framer = SseFramer(NativeEncoder(), run_id)
    batch = [Logged(Position(1, number), event) for number, event in enumerate(events, 3)]
    example = framer.frame_batch(batch) + framer.end_frames()
    has_agent = "{agentId}" in path
    return describe_operation(
        "sendMessageToAgent" if has_agent else "sendMessage",
        "Post new messages, or the results of client tools; get the answer.",
        run_responses(headers=POST_HEADERS, example=example),
        *POST_ERRORS,
        parameters=[*([_AGENT_PARAMETER] if has_agent else []), WAIT, *REPEATS],
        requestBody=json_body(schema_reference("SendMessage"), example=dict(_EXAMPLE_POST)),
    )
