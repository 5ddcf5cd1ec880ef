"""What a caller in Python says, checked as what clients post is: the same forms, limits and errors."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, PydanticUserError, ValidationError
from pydantic_core import from_json

from passback.core.errors import BodyTooLarge, InvalidOutputSchema, InvalidRequest
from passback.core.ids import new_message_id
from passback.core.messages import (
    ApprovalMessage,
    CallId,
    ConversationKey,
    Part,
    PostedMessage,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from passback.core.questions import ASK_USER
from passback.http.body import parse_json
from passback.http.requests import validated
from passback.http.wires import RequestLimits
from passback.native.declarations import parse_tools
from passback.native.message_context import PostedBrief, briefed, read_brief
from passback.native.parts import Posted, PostedContent, read_content, read_result, show_content

_YES: Final = frozenset({"yes", "true", "approve", "approved", "allow"})
_EXPECTED: Final = 'the payload of resume has to be {"approved": true or false, "reason"?: text of at most 10,000 characters, "always"?: true or false}'
_NO: Final = frozenset({"no", "false", "deny", "denied", "reject", "rejected"})


class Approval(Posted):
    """Whether a call may be made. `reason` is what the model is told of a denial.

    `always` is an answer for all later calls of the tool in the conversation, too: they are made, or denied, and nobody is
    asked.
    """

    approved: bool
    reason: Annotated[str, Field(max_length=10_000)] = ""
    always: bool = False


def read_approval(call_id: CallId, payload: JsonValue, /) -> ApprovalMessage:
    """The answer in any of its forms: an `Approval`, its JSON text, true or false, or a word for one of these.

    Raises:
        InvalidRequest: none of them; says what is expected.
    """
    approval = _read_approval(payload)
    reason = approval.reason.strip()
    return ApprovalMessage(new_message_id(), call_id, approval.approved, reason, approval.always)


def _read_approval(payload: JsonValue) -> Approval:
    if isinstance(payload, str):
        word = payload.strip().lower()
        if word in _YES | _NO:
            return Approval(approved=word in _YES)
        payload = _parsed(payload)
    if isinstance(payload, bool):
        return Approval(approved=payload)
    try:
        return Approval.model_validate(payload)
    except ValidationError:
        raise InvalidRequest(_EXPECTED) from None


def _parsed(text: str) -> JsonValue:
    try:
        value: JsonValue = from_json(text, allow_inf_nan=False)
    except ValueError:
        return None
    return value


SubmissionT = TypeVar("SubmissionT", bound=Posted)

# a caller knows the names of Python only
_PYTHON = ConfigDict(loc_by_alias=False)
_CallId = Annotated[str, Field(min_length=1, max_length=256)]


class _Submission(PostedBrief):
    model_config = _PYTHON

    content: PostedContent


class _Result(Posted):
    model_config = _PYTHON

    call_id: _CallId
    content: JsonValue
    is_error: bool


class _Decision(Approval):
    model_config = _PYTHON

    call_id: _CallId


async def read_submission(
    given: Mapping[str, object], limits: RequestLimits, /, *, key: ConversationKey
) -> PostedMessage:
    """A user's message in a conversation; `given` is its `content` and what `PostedBrief` has, by the names of Python.

    Raises:
        BodyTooLarge: all of it is larger than the body of a post may be.
        InvalidRequest, AttachmentTooLarge, DataTooLarge, InvalidOutputSchema, SchemasBusy: as for a post.
    """
    plain = {
        **given,
        "content": _plain(given["content"]),
        "constraints": _plain(given["constraints"]),
        "output_schema": _plain_schema(given["output_schema"]),
    }
    said = _read(_Submission, plain, limits)
    message = UserMessage(new_message_id(), read_content(said.content, limits.attachment_bytes))
    [briefly] = briefed([message], await read_brief(said, limits, key))
    return briefly


async def read_answer(given: Mapping[str, object], limits: RequestLimits, /) -> PostedMessage:
    """The result of a call: `call_id`, `content` (a text, parts, or any JSON) and `is_error`.

    Raises:
        BodyTooLarge, InvalidRequest, ResultTooLarge: as for a post.
    """
    said = _read(_Result, {**given, "content": _plain(given["content"])}, limits)
    content = read_result(said.content, limits.result_bytes)
    return ToolMessage(new_message_id(), CallId(said.call_id), content, said.is_error)


async def read_decision(given: Mapping[str, object], limits: RequestLimits, /) -> ApprovalMessage:
    """A person's word on a call: `call_id`, `approved`, `reason` and `always`.

    Raises:
        InvalidRequest: as for a post.
    """
    said = _read(_Decision, given, limits)
    return read_approval(CallId(said.call_id), said.model_dump(exclude={"call_id"}))


async def read_declared(
    tools: Sequence[ToolSpec], limits: RequestLimits, key: ConversationKey, /
) -> tuple[ToolSpec, ...]:
    """Tools that the caller executes; raises as `parse_tools`, and InvalidRequest for what is no JSON."""
    declared: list[JsonValue] = [
        {
            "name": spec.name,
            "description": spec.description,
            "parameters": None if spec == ASK_USER else dict(spec.parameters),
        }
        for spec in tools
    ]
    _as_text(declared)
    return await parse_tools(declared, limits, key)


# ---------------------------------------------------------------- to what could be posted
def _plain(content: object) -> object:
    if not isinstance(content, list | tuple):
        return content
    parts = cast("Sequence[object]", content)
    known = tuple(each for each in parts if isinstance(each, Part))
    return show_content(known) if len(known) == len(parts) else list(parts)


def _plain_schema(schema: object) -> object:
    if isinstance(schema, Mapping):
        return dict(cast("Mapping[str, object]", schema))
    return _derived(schema) if isinstance(schema, type) else schema


def _derived(schema: type[object]) -> object:
    if not issubclass(schema, BaseModel):
        return schema
    try:
        return schema.model_json_schema()
    except PydanticUserError as error:
        raise InvalidOutputSchema(f"output_schema has no JSON Schema: {error.message}") from error


def _read(
    form: type[SubmissionT], given: Mapping[str, object], limits: RequestLimits
) -> SubmissionT:
    said = validated(form, cast("dict[str, JsonValue]", dict(given)))  # which is what is found out
    text = _as_text(said.model_dump())
    if len(text) > limits.body_bytes:
        raise BodyTooLarge(
            f"what is said is larger than {limits.body_bytes} bytes (PASSBACK_MAX_BODY_BYTES)"
        )
    parse_json(text, depth=limits.depth)
    return said


def _as_text(value: object) -> bytes:
    """Raises InvalidRequest for what JSON in UTF-8 cannot hold, such as infinity."""
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise InvalidRequest("what is said cannot be written as JSON") from error
