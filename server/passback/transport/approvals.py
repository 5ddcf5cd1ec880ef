"""A person's answer to an interrupt, as clients post it."""

from typing import Annotated, Final

from pydantic import Field, JsonValue, ValidationError
from pydantic_core import from_json

from passback.core.errors import InvalidRequest
from passback.core.ids import new_message_id
from passback.core.messages import ApprovalMessage, CallId
from passback.transport.parts import Posted

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
    approval = _read(payload)
    reason = approval.reason.strip()
    return ApprovalMessage(new_message_id(), call_id, approval.approved, reason, approval.always)


def _read(payload: JsonValue) -> Approval:
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
