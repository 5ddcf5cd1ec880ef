"""What a request means: which of its messages are new, and what they are."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar, cast

from pydantic import JsonValue

from passback.core.errors import InvalidRequest, NothingToDo, PassbackError
from passback.core.ids import new_message_id
from passback.core.messages import (
    CallId,
    ConversationKey,
    Generation,
    MessageId,
    OwnerId,
    PostedMessage,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from passback.core.posts import StartRun
from passback.transport.approvals import read_approval
from passback.transport.briefs import briefed, read_brief, refuse_large
from passback.transport.declarations import parse_tools
from passback.transport.parts import checked, read_result
from passback.transport.requests import posted_conversation_id, validated
from passback.transport.wires import Services
from passback.wire.agent_api.content import read_part
from passback.wire.agent_api.posted import (
    APPROVAL,
    OF_A_TURN,
    RESULT,
    UNHEARD,
    AgentData,
    AgentInput,
    AgentRequest,
    ApprovalData,
    Named,
    ResultData,
)

T = TypeVar("T")
BodyT = TypeVar("BodyT", bound=Named)


async def read_request(
    services: Services, owner: OwnerId, key: str | None, post: AgentRequest, /
) -> StartRun:
    """The command of a request.

    Raises:
        ClientError: says what is wrong with it; of a message, its place.
    """
    if post.n not in {None, 1}:
        raise InvalidRequest("n has to be 1: there is one answer to a request")
    new = new_messages(post.input)
    if post.input and not new:
        raise NothingToDo(
            "input has nothing new: nothing of the user's comes behind what the agent said last"
        )
    messages = [_at(f"input.{at}", _read, services, each, post) for at, each in new]
    tools = None if post.tools is None else _flat(post.tools)
    conversation = ConversationKey(
        owner, posted_conversation_id(owner, key, post.session_id or None)
    )
    return StartRun(
        conversation,
        await _briefed(services, post, messages, conversation),
        None if tools is None else await parse_tools(tools, services.limits, conversation),
        idempotency_key=key,
        named=frozenset(MessageId(each.id) for _, each in new if each.id and not each.is_answer),
        on_busy=post.on_busy or services.on_busy,
        on_disconnect=post.on_disconnect or "continue",
        resends=True,
        continues=any(each.is_the_agents for each in post.input),
    )


# ---------------------------------------------------------------- what is new
def new_messages(given: Sequence[AgentInput], /) -> list[tuple[int, AgentInput]]:
    """The messages behind what the agent said last, with their places.

    Answers may stand between the calls that are answered. What the user said before these calls is history.
    """
    new: list[tuple[int, AgentInput]] = []
    behind_calls = False
    for at in reversed(range(len(given))):
        message = given[at]
        if message.is_answer:
            new.append((at, message))
        elif message.type in UNHEARD:
            continue
        elif message.is_the_agents:
            if message.type not in OF_A_TURN:
                break
            behind_calls = True
        elif behind_calls:
            break
        else:
            new.append((at, message))
    return new[::-1]


# ---------------------------------------------------------------- messages
def _at(place: str, read: Callable[..., T], *given: object) -> T:
    """What `read` gives; an error of it tells the place."""
    try:
        return read(*given)
    except PassbackError as error:
        if type(error) is not InvalidRequest:  # one that says more by its code
            raise type(error)(f"{place}: {error.message}", details=error.details) from None
        problems = [_placed(place, each) for each in _problems(error)]
        told = f"{problems[0]['at']}: {problems[0]['problem']}"
        raise InvalidRequest(told, details={"problems": list[JsonValue](problems)}) from None


def _problems(error: PassbackError) -> Sequence[Mapping[str, JsonValue]]:
    found = error.details.get("problems") or [{"problem": error.message}]
    return cast("Sequence[Mapping[str, JsonValue]]", found)


def _placed(place: str, problem: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """A problem, whose place is within another one."""
    at = f"{place}.{problem['at']}" if problem.get("at") else place
    return {**problem, "at": at}


def _read(services: Services, message: AgentInput, post: AgentRequest) -> PostedMessage:
    if message.type == RESULT:
        return _result(services, message)
    if message.type == APPROVAL:
        return _approval(message)
    role = message.role or "user"
    if role == "tool":
        raise InvalidRequest(f"a result is a message of the type {RESULT!r}")
    if role not in services.allow_roles:
        raise InvalidRequest(f"the role {role!r} is not allowed")
    parts = tuple(
        _at(f"content.{at}", read_part, part) for at, part in enumerate(message.content or ())
    )
    content = checked(parts, services.limits.attachment_bytes)
    message_id = MessageId(message.id) if message.id else new_message_id()
    if role == "system":
        return SystemMessage(message_id, content)
    return UserMessage(message_id, content, post.agent_id or "")


def _result(services: Services, message: AgentInput) -> ToolMessage:
    given = _body(message, ResultData)
    content = read_result(given.output, services.limits.result_bytes)
    failed = given.is_error or message.status == "failed"
    return ToolMessage(new_message_id(), CallId(given.call_id), content, failed)


def _approval(message: AgentInput) -> PostedMessage:
    given = _body(message, ApprovalData)
    decision: JsonValue = {
        "approved": given.approve,
        "reason": given.reason or "",
        "always": given.always,
    }
    return read_approval(CallId(given.approval_request_id), decision)


def _body(message: AgentInput, form: type[BodyT]) -> BodyT:
    """The data of an answer: its only part, or the only one of data."""
    parts = enumerate(message.content or ())
    found = [(at, part.data) for at, part in parts if isinstance(part, AgentData)]
    if len(found) != 1:
        raise InvalidRequest(f"{message.type} needs one part of type 'data', and has {len(found)}")
    [(at, data)] = found
    return _at(f"content.{at}.data", partial(validated, form), data)


# ---------------------------------------------------------------- what is said beside them
def _flat(tools: Sequence[JsonValue]) -> list[JsonValue]:
    """The declarations without the object around them."""
    return [
        tool["function"] if isinstance(tool, dict) and tool.get("function") is not None else tool
        for tool in tools
    ]


async def _briefed(
    services: Services,
    post: AgentRequest,
    messages: Sequence[PostedMessage],
    key: ConversationKey,
) -> tuple[PostedMessage, ...]:
    brief = await read_brief(post, services.limits, key)
    # without a user message, what the one before said of its answer still holds
    if any(isinstance(each, UserMessage) for each in messages):
        if (generation := _generation(post)) != Generation():
            brief = replace(brief, generation=generation)
        if extras := post.model_extra:
            refuse_large("what the request says beyond the protocol", extras, services.limits)
            brief = replace(brief, extras=extras)
    return briefed(messages, brief, AgentRequest)


def _generation(post: AgentRequest) -> Generation:
    stop = (post.stop,) if isinstance(post.stop, str) else tuple(post.stop or ())
    return Generation(
        post.temperature,
        post.top_p,
        post.max_tokens,
        stop or None,
        post.seed,
        post.frequency_penalty,
        post.presence_penalty,
    )
