"""Single messages of a request: a user's words, results and decisions, as those of core."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar, cast

from pydantic import JsonValue

from passback.core.errors import InvalidRequest, PassbackError
from passback.core.ids import new_message_id
from passback.core.messages import (
    CallId,
    MessageId,
    PostedMessage,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from passback.transport.approvals import read_approval
from passback.transport.parts import checked, read_result
from passback.transport.requests import validated
from passback.transport.wires import Services
from passback.wire.agent_api.content import read_part
from passback.wire.agent_api.posted import (
    APPROVAL,
    RESULT,
    AgentData,
    AgentInput,
    ApprovalData,
    Named,
    ResultData,
)

T = TypeVar("T")
BodyT = TypeVar("BodyT", bound=Named)


def at_place(place: str, read: Callable[..., T], *given: object) -> T:
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


def read_message(services: Services, message: AgentInput, agent: str, /) -> PostedMessage:
    """Raises ClientError: says what is wrong with it, and where."""
    if message.type == RESULT:
        return result_of(services, message)
    if message.type == APPROVAL:
        return _approval(message)
    return read_words(services, message, agent)


def read_words(
    services: Services, message: AgentInput, agent: str, /
) -> SystemMessage | UserMessage:
    """Raises ClientError: says what is wrong with it, and where."""
    role = message.role or "user"
    if role == "tool":
        raise InvalidRequest(f"a result is a message of the type {RESULT!r}")
    if role not in services.allow_roles:
        raise InvalidRequest(f"the role {role!r} is not allowed here (PASSBACK_ALLOW_ROLES)")
    parts = tuple(
        at_place(f"content.{at}", read_part, part) for at, part in enumerate(message.content or ())
    )
    content = checked(parts, services.limits.attachment_bytes)
    message_id = MessageId(message.id) if message.id else new_message_id()
    if role == "system":
        return SystemMessage(message_id, content)
    return UserMessage(message_id, content, agent)


def result_of(services: Services, message: AgentInput, /) -> ToolMessage:
    """Raises InvalidRequest, ResultTooLarge."""
    given = body_of(message, ResultData)
    content = read_result(given.output, services.limits.result_bytes)
    failed = given.is_error or message.status == "failed"
    return ToolMessage(new_message_id(), CallId(given.call_id), content, failed)


def _approval(message: AgentInput) -> PostedMessage:
    given = body_of(message, ApprovalData)
    decision: JsonValue = {
        "approved": given.approve,
        "reason": given.reason or "",
        "always": given.always,
    }
    return read_approval(CallId(given.approval_request_id), decision)


def body_of(message: AgentInput, form: type[BodyT], /) -> BodyT:
    """The data of a call or an answer: its only part, or the only one of data. Raises InvalidRequest."""
    parts = enumerate(message.content or ())
    found = [(at, part.data) for at, part in parts if isinstance(part, AgentData)]
    if len(found) != 1:
        raise InvalidRequest(f"{message.type} needs one part of type 'data', and has {len(found)}")
    [(at, data)] = found
    return at_place(f"content.{at}.data", partial(validated, form), data)
