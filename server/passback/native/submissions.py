"""The input of callers in Python, checked as posts are: the same models, limits and errors."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, PydanticUserError
from pydantic_core import from_json

from passback.core.errors import BodyTooLarge, InvalidOutputSchema, InvalidRequest
from passback.core.messages import (
    UNNAMED,
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
from passback.http.requests import validate_model
from passback.http.wires import RequestLimits
from passback.native.declarations import parse_tools
from passback.native.message_context import PostedContext, add_context, read_context
from passback.native.parts import Posted, PostedContent, read_content, read_result, show_content

_YES: Final = frozenset({"yes", "true", "approve", "approved", "allow"})
_EXPECTED: Final = (
    'the payload of resume has to be {"approved": true or false, '
    '"reason"?: text of at most 10,000 characters, "always"?: true or false}'
)
_NO: Final = frozenset({"no", "false", "deny", "denied", "reject", "rejected"})


class Approval(Posted):
    """A person's decision on a call. `reason` is the text that the model gets for a denial.

    `always` decides all later calls of the tool in the conversation, too: they are made, or
    denied, without asking.
    """

    approved: bool
    reason: Annotated[str, Field(max_length=10_000)] = ""
    always: bool = False


def read_approval(call_id: CallId, payload: JsonValue, /) -> ApprovalMessage:
    """Return a decision, given as an `Approval`, its JSON text, true or false, or a word for one.

    Raises:
        InvalidRequest: it is none of them. The error describes them.
    """
    try:
        if isinstance(payload, str):
            word = payload.strip().lower()
            payload = (
                word in _YES
                if word in _YES | _NO
                else cast("JsonValue", from_json(payload, allow_inf_nan=False))
            )
        given = {"approved": payload} if isinstance(payload, bool) else payload
        approval = Approval.model_validate(given)
    except ValueError:  # of the parser, or pydantic's
        raise InvalidRequest(_EXPECTED) from None
    reason = approval.reason.strip()
    return ApprovalMessage(UNNAMED, call_id, approval.approved, reason, approval.always)


SubmissionT = TypeVar("SubmissionT", bound=Posted)

# errors name the fields as in Python: a caller does not know the aliases
_PYTHON_NAMES = ConfigDict(loc_by_alias=False)
_CallId = Annotated[str, Field(min_length=1, max_length=256)]


class _Submission(PostedContext):
    model_config = _PYTHON_NAMES

    content: PostedContent


class _Result(Posted):
    model_config = _PYTHON_NAMES

    call_id: _CallId
    content: JsonValue
    is_error: bool


class _Decision(Approval):
    model_config = _PYTHON_NAMES

    call_id: _CallId


async def read_submission(
    given: Mapping[str, object], limits: RequestLimits, /, *, key: ConversationKey
) -> PostedMessage:
    """Return a user's message in a conversation.

    `given` has its `content` and the fields of `PostedContext`, by their names in Python.

    Raises:
        BodyTooLarge: all of it is larger than the body of a post may be.
        InvalidRequest, AttachmentTooLarge, DataTooLarge, InvalidOutputSchema, SchemasBusy: as for
            a post.
    """
    plain = {
        **given,
        "content": _plain_content(given["content"]),
        "constraints": _plain_content(given["constraints"]),
        "output_schema": _plain_schema(given["output_schema"]),
    }
    posted = _validate_submission(_Submission, plain, limits)
    message = UserMessage(UNNAMED, read_content(posted.content, limits.attachment_bytes))
    [with_context] = add_context([message], await read_context(posted, limits, key))
    return with_context


async def read_tool_result(given: Mapping[str, object], limits: RequestLimits, /) -> PostedMessage:
    """Return the result of a call.

    `given` has `call_id`, `content` (a text, parts, or any JSON) and `is_error`.

    Raises:
        BodyTooLarge, InvalidRequest, ResultTooLarge: as for a post.
    """
    plain = {**given, "content": _plain_content(given["content"])}
    posted = _validate_submission(_Result, plain, limits)
    content = read_result(posted.content, limits.result_bytes)
    return ToolMessage(UNNAMED, CallId(posted.call_id), content, posted.is_error)


async def read_decision(given: Mapping[str, object], limits: RequestLimits, /) -> ApprovalMessage:
    """Return a person's decision on a call.

    `given` has `call_id`, `approved`, `reason` and `always`.

    Raises:
        InvalidRequest: as for a post.
    """
    posted = _validate_submission(_Decision, given, limits)
    return read_approval(CallId(posted.call_id), posted.model_dump(exclude={"call_id"}))


async def read_tools(
    tools: Sequence[ToolSpec], limits: RequestLimits, key: ConversationKey, /
) -> tuple[ToolSpec, ...]:
    """Return the tools that the caller executes, checked.

    Raises:
        InvalidRequest: a schema cannot be written as JSON.
        InvalidTool, ToolNameClash, SchemasBusy: as `parse_tools` raises them.
    """
    declared: list[JsonValue] = [
        {
            "name": spec.name,
            "description": spec.description,
            # without parameters, `ask_user` is the built-in tool
            "parameters": None if spec == ASK_USER else dict(spec.parameters),
        }
        for spec in tools
    ]
    _encode_json(declared)
    return await parse_tools(declared, limits, key)


def _plain_content(content: object) -> object:
    """Return content as it could be posted. Anything else stays, for the validation to refuse."""
    if not isinstance(content, list | tuple):
        return content
    parts = cast("Sequence[object]", content)
    known = tuple(each for each in parts if isinstance(each, Part))
    return show_content(known) if len(known) == len(parts) else list(parts)


def _plain_schema(schema: object) -> object:
    """Return a schema as it could be posted. A pydantic model stands for its JSON Schema."""
    if isinstance(schema, Mapping):
        return dict(cast("Mapping[str, object]", schema))
    if not isinstance(schema, type):
        return schema
    model = cast("type[object]", schema)
    if not issubclass(model, BaseModel):
        return model  # for the validation to refuse
    try:
        return model.model_json_schema()
    except PydanticUserError as error:
        raise InvalidOutputSchema(f"output_schema has no JSON Schema: {error.message}") from error


def _validate_submission(
    form: type[SubmissionT], given: Mapping[str, object], limits: RequestLimits
) -> SubmissionT:
    """Return what was given as a model, within the limits of a post.

    Raises:
        InvalidRequest: it does not fit the model, or cannot be written as JSON.
        BodyTooLarge: it is larger than the body of a post may be.
        BadRequest: it is nested too deep.
    """
    # the cast is what the validation proves
    posted = validate_model(form, cast("dict[str, JsonValue]", dict(given)))
    text = _encode_json(posted.model_dump())
    if len(text) > limits.body_bytes:
        raise BodyTooLarge(
            f"what is said is larger than {limits.body_bytes} bytes (body_bytes in PASSBACK_LIMITS)"
        )
    parse_json(text, depth=limits.depth)  # only for its limits
    return posted


def _encode_json(value: object) -> bytes:
    """Return a value as JSON in UTF-8.

    Raises:
        InvalidRequest: JSON cannot hold it, such as infinity.
    """
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise InvalidRequest("what is said cannot be written as JSON") from error
