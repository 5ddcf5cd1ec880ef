"""The errors of the protocol: `{"error": {"message", "type", "param", "code"}}`, all four keys."""

from collections.abc import Mapping, Sequence
from typing import Final, cast

from passback.core.values import value
from passback.http.answers import STATUS, ErrorForm, ErrorView

PREVIOUS: Final = "previous_response_id"
"""The parameter for which an unknown response is a wrong request, not a missing address."""


@value
class ErrorClass:
    """The protocol's name for an error.

    Args:
        type: its kind.
        code: the protocol's code; None: that of this server.
        status: of the answer; None: as everywhere here.
        final: a repeat cannot succeed, although the status looks so. Clients ask before they wait.
    """

    type: str
    code: str | None = None
    status: int | None = None
    final: bool = False


_WRONG: Final = ErrorClass("invalid_request_error", status=400)
_TOO_LARGE: Final = ErrorClass("invalid_request_error")
_MISSING: Final = ErrorClass("not_found")
_TAKEN: Final = ErrorClass("conflict", final=True)
_MANY: Final = ErrorClass("too_many_requests", "rate_limit_exceeded")
_SERVER: Final = ErrorClass("server_error", "server_error")
_MODEL: Final = ErrorClass("model_error")
_LONG: Final = ErrorClass("invalid_request_error", "context_length_exceeded", 400)

_CLASSES: Final[Mapping[str, ErrorClass]] = {
    **dict.fromkeys(
        (
            *("body_too_large", "headers_too_large", "unsupported_media_type", "request_timeout"),
            *("data_too_large", "attachment_too_large", "message_too_large", "history_too_large"),
            *("result_too_large", "upgrade_required", "foreign_host", "method_not_allowed"),
        ),
        _TOO_LARGE,
    ),
    **dict.fromkeys(
        ("not_found", "conversation_not_found", "run_not_found", "message_not_found"), _MISSING
    ),
    "agent_not_found": ErrorClass("invalid_request_error", "model_not_found"),
    "unknown_model": ErrorClass("invalid_request_error", "model_not_found", 404),
    "tool_call_not_found": _WRONG,
    "cursor_expired": _TOO_LARGE,
    "conversation_busy": ErrorClass("conflict", "conversation_locked"),
    **dict.fromkeys(("conflict", "tool_result_conflict"), _TAKEN),
    "reused": ErrorClass("conflict", status=409, final=True),
    "call_claimed": ErrorClass("conflict"),
    **dict.fromkeys(
        (
            *("queue_full", "too_many_runs", "too_many_sockets", "schemas_busy"),
            "model_rate_limited",
        ),
        _MANY,
    ),
    "unauthenticated": ErrorClass("authentication_error", "invalid_api_key"),
    **dict.fromkeys(
        ("refused", "keys_needed", "not_allowed", "foreign_origin"),
        ErrorClass("permission_error"),
    ),
    "model_context_exceeded": _LONG,
    "context_too_large": _LONG,
    **dict.fromkeys(
        (
            *("model_error", "model_unavailable", "model_rejected", "model_incomplete"),
            *("model_astray", "output_invalid", "toolset_unavailable"),
        ),
        _MODEL,
    ),
    **dict.fromkeys(
        (
            *("store_error", "store_unavailable", "store_full", "lease_lost", "lost"),
            *("server_busy", "shutting_down", "configuration_error", "internal"),
        ),
        _SERVER,
    ),
}


_PARAMETERS: Final[Mapping[str, str]] = {
    "invalid_tool": "tools",
    "tool_name_clash": "tools",
    "invalid_output_schema": "text.format.schema",
    "agent_not_found": "model",
    "unknown_model": "model",
    "tool_call_not_found": "input",
}
"""The parameter that an error is about, where its code tells it."""


def find_class(code: str, /) -> ErrorClass:
    """Return how the protocol names an error of this server. Others are wrong requests."""
    return _CLASSES.get(code, _WRONG)


def status_of_error(code: str, /) -> int:
    """Return the status of an error of this server in this protocol."""
    return find_class(code).status or STATUS[code]


def form_error(view: ErrorView, /) -> ErrorForm:
    """Return an error in the protocol's form. `param` is the first place that does not fit."""
    known = find_class(view.code)
    details = view.details or {}
    param = details.get("parameter") or _PARAMETERS.get(view.code)
    problems = cast("Sequence[Mapping[str, str]]", details.get("problems") or ())
    if param is None and problems:
        param = problems[0].get("at") or None
    status, code = known.status, known.code
    if param == PREVIOUS and known is _MISSING:
        status, code = 400, "previous_response_not_found"
    error: dict[str, object] = {
        "message": view.message,
        "type": "invalid_request_error" if code == "previous_response_not_found" else known.type,
        "param": param,
        "code": code or (None if known in {_WRONG, _MISSING} else view.code),
    }
    headers = {"x-should-retry": "false"} if known.final else {}
    return ErrorForm({"error": error}, status, headers)
