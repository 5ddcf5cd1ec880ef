"""Answers that are not streams: JSON documents, and errors as JSON. Each has its request's id."""

import json
import logging
import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import field
from http import HTTPStatus
from typing import Final, TypeAlias
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from passback.core.budgets import Left
from passback.core.errors import KeysNeeded, PassbackError
from passback.core.events import Failed
from passback.core.messages import ConversationId, OwnerId, RunId
from passback.core.values import value
from passback.http.requests import PLAIN_ID, headers_of

logger = logging.getLogger(__name__)

# The HTTP status of each code of `core.errors`.
STATUS: Mapping[str, int] = {
    "bad_request": 400,
    "body_too_large": 413,
    "headers_too_large": 431,
    "unsupported_media_type": 415,
    "request_timeout": 408,
    "not_acceptable": 406,
    "upgrade_required": 426,
    "client_error": 400,
    "invalid_request": 422,
    "invalid_tool": 422,
    "tool_name_clash": 422,
    "invalid_output_schema": 422,
    "data_too_large": 413,
    "attachment_too_large": 413,
    "message_too_large": 413,
    "history_too_large": 413,
    "unsupported_attachment": 422,
    "nothing_to_do": 422,
    "result_too_large": 413,
    "unknown_command": 422,
    "unknown_model": 422,
    "invalid_answer": 422,
    "invalid_cursor": 422,
    "reused": 422,
    "not_found": 404,
    "conversation_not_found": 404,
    "agent_not_found": 404,
    "run_not_found": 404,
    "tool_call_not_found": 404,
    "message_not_found": 404,
    # not 404: the run is known, and no repeat brings back what was trimmed
    "cursor_expired": 410,
    "conflict": 409,
    "conversation_busy": 409,
    # not 409: the client was ready to wait, and generic clients know how to come back after a 429
    "queue_full": 429,
    "schemas_busy": 429,
    "too_many_runs": 429,
    "too_many_sockets": 429,
    "tool_result_conflict": 409,
    "call_claimed": 409,
    "refused": 403,
    "unauthenticated": 401,
    "keys_needed": 403,
    "not_allowed": 403,
    "foreign_host": 421,
    "foreign_origin": 403,
    "store_error": 503,
    "store_unavailable": 503,
    # not 507: generic clients and proxies know 503 and repeat later, which is right for a store
    # that has no room at the moment
    "store_full": 503,
    "lease_lost": 503,
    "model_error": 502,
    "model_unavailable": 503,
    "model_rate_limited": 429,
    "model_rejected": 502,
    "model_context_exceeded": 502,
    "model_incomplete": 502,
    "model_astray": 502,
    "output_invalid": 502,
    "toolset_unavailable": 503,
    # not 413: the post was taken, and is in the record
    "context_too_large": 422,
    "lost": 500,
    # not 429: it is not this client alone that asks too much
    "server_busy": 503,
    "shutting_down": 503,
    "configuration_error": 500,
    "internal": 500,
}

# Headers of every answer: a browser guesses no other type, and gives the answer to no page of
# another origin. Pages of `Access.origins` use CORS, which the policy leaves alone.
SAFE_HEADERS: Mapping[str, str] = {
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
}
_UNCACHED_HEADERS: Mapping[str, str] = {**SAFE_HEADERS, "cache-control": "no-store"}

_REPEATABLE_STATUSES = frozenset({429, 503})
_DEFAULT_RETRY_AFTER = 1  # seconds, where the error itself names no time

_EXTRA_HEADERS: Mapping[str, Mapping[str, str]] = {
    "unauthenticated": {"www-authenticate": "Bearer"},
    # RFC 9110, section 15.5.22, and RFC 6455, section 4.2.2
    "upgrade_required": {
        "upgrade": "websocket",
        "connection": "upgrade",
        "sec-websocket-version": "13",
    },
    # Not for a body that is too large: its client still sends, so closing would reset the
    # connection, and the client would miss the answer.
    "request_timeout": {"connection": "close"},
}


@value
class ErrorView:
    """An error as a client sees it.

    Args:
        status: of the HTTP response.
        code: stable, for programs.
        message: one sentence, for people.
        details: more, for some codes.
        request_id: of the request.
    """

    status: int
    code: str
    message: str
    request_id: str
    details: Mapping[str, object] | None = None


@value
class ErrorForm:
    """An error in the form of a protocol.

    Args:
        body: its JSON, or a text for people; then its code is in the header `X-Error-Code`.
        status: in place of the status of the view; None keeps that.
        headers: more headers.
    """

    body: Mapping[str, object] | str
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


FormError: TypeAlias = Callable[[ErrorView], ErrorForm]
"""Returns an error in the form of a protocol."""

_ERROR_FORM_KEY = "passback.error_form"
_REQUEST_ID_KEY = "passback.request_id"
_OWNER_KEY = "passback.owner"
_MAY_LIST_KEY = "passback.may_list"
_CODE_KEY = "passback.code"
_END_KEY = "passback.end"
_VISIBLE_CHARACTERS = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "%")


def request_id(scope: Scope, /) -> str:
    """Return the id of this request, the same on every call.

    It is the client's `X-Request-Id` if that is plain, else a new one.
    """
    known: str | None = scope.get(_REQUEST_ID_KEY)
    if known is None:
        given = headers_of(scope).first.get(b"x-request-id", "")
        known = given if PLAIN_ID.fullmatch(given) else f"req_{secrets.token_hex(12)}"
        scope[_REQUEST_ID_KEY] = known
    return known


def set_owner(scope: Scope, owner: OwnerId, may_list: bool = True, /) -> None:
    """Record the owner of this request, and `Access.may_list`. Only the gate calls this."""
    set_late_owner(scope, owner)
    await_key(scope, may_list)


def await_key(scope: Scope, may_list: bool, /) -> None:
    """Record `Access.may_list` of a request whose key comes later. Only the gate calls this."""
    scope[_MAY_LIST_KEY] = may_list


def set_late_owner(scope: Scope, owner: OwnerId, /) -> None:
    """Record the owner of a request whose key has come later (`Wire.late_keys`)."""
    scope[_OWNER_KEY] = owner


def owner_of(request: Request, /) -> OwnerId:
    """Return the owner of this request.

    Raises:
        KeyError: the route is not behind the gate, or its keys come later (`Wire.late_keys`):
            `known_owner` returns None then.
    """
    owner: OwnerId = request.scope[_OWNER_KEY]
    return owner


def lister_of(request: Request, /) -> OwnerId:
    """Return the owner of a request that lists conversations.

    Raises:
        KeysNeeded: everybody has the same owner, and the ids of its conversations are secrets.
    """
    if not may_list(request.scope):
        raise KeysNeeded(
            "this list shows the ids of all conversations: it needs API keys, or a server that "
            "listens on loopback only"
        )
    return owner_of(request)


def may_list(scope: Scope, /) -> bool:
    """Return whether the owner of this request may see the ids of all its conversations."""
    allowed: bool = scope.get(_MAY_LIST_KEY, True)  # a key that comes later has one owner
    return allowed


def known_owner(scope: Scope, /) -> OwnerId | None:
    """Return the owner of this request, or None if that is not known.

    The gate refused the request before, or its key comes later.
    """
    owner: OwnerId | None = scope.get(_OWNER_KEY)
    return owner


def set_error_form(scope: Scope, form: FormError, /) -> None:
    """Give the errors of this request the form of its wire. Only the site calls this."""
    scope[_ERROR_FORM_KEY] = form


def noted_code(scope: Scope, /) -> str | None:
    """Return the code of the error that answers a request, for its line in the access log."""
    code: str | None = scope.get(_CODE_KEY)
    return code


def note_end(scope: Scope, code: int, reason: str, /) -> None:
    """Record why the server ends a WebSocket, for its line in the access log; the first counts."""
    scope.setdefault(_END_KEY, (code, reason))


def noted_end(scope: Scope, /) -> tuple[int, str] | None:
    """Return the close code of a WebSocket that the server has ended, and the reason."""
    end: tuple[int, str] | None = scope.get(_END_KEY)
    return end


def run_headers(conversation_id: ConversationId, run_id: RunId | None, /) -> dict[str, str]:
    """Return the headers that name the conversation and the run of an answer.

    An id of a conversation is percent-encoded where it is not visible ASCII.
    """
    is_plain = PLAIN_ID.fullmatch(conversation_id)
    visible = conversation_id if is_plain else quote(conversation_id, safe=_VISIBLE_CHARACTERS)
    headers = {"x-conversation-id": visible}
    return headers if run_id is None else headers | {"x-run-id": run_id}


def left_headers(left: Left | None, /) -> dict[str, str]:
    """Return the headers with the rest of each limit when the answer begins.

    They are plain decimal numbers.
    """
    headers: dict[str, str] = {}
    for kind in ("turns", "tokens", "seconds", "cost"):
        rest: int | float | None = getattr(left, kind, None)
        if rest is not None:
            # a float not by `str`, which writes 0.00001 as 1e-05
            text = f"{rest:f}".rstrip("0").rstrip(".") if isinstance(rest, float) else str(rest)
            headers[f"x-budget-left-{kind}"] = text
    return headers


def json_answer(
    scope: Scope,
    body: Mapping[str, object],
    /,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a response with a JSON object that no cache keeps."""
    return written_answer(scope, write_json(body), status=status, headers=headers)


# `json.dumps` would make one for each call
_COMPACT: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def write_json(body: Mapping[str, object], /) -> str:
    return _COMPACT.encode(body)


def written_answer(
    scope: Scope,
    content: str,
    /,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a response as `json_answer` does, of an object that `write_json` has written."""
    return Response(
        content,
        status,
        {**_UNCACHED_HEADERS, "x-request-id": request_id(scope), **(headers or {})},
        media_type="application/json",
    )


def empty_answer(scope: Scope, /, *, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response without content (204)."""
    known = {**_UNCACHED_HEADERS, "x-request-id": request_id(scope), **(headers or {})}
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=known)


def error_answer(
    scope: Scope, error: PassbackError, /, *, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an error as a response."""
    if STATUS[error.code] >= HTTPStatus.INTERNAL_SERVER_ERROR:
        logger.warning("request %s failed: %s", request_id(scope), error.code)
    return _error_document(scope, error, headers)


def socket_refusal(scope: Scope, error: PassbackError, /) -> ASGIApp:
    """Return an error as the answer to the handshake of a WebSocket."""
    answer = error_answer(scope, error)
    if "websocket.http.response" in scope.get("extensions", {}):
        return answer

    async def close(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "websocket.close", "code": 1008})  # a server makes it a 403

    return close


def internal_error_answer(scope: Scope, /) -> Response:
    """Return the response to an exception that was logged already. It reveals nothing of it."""
    return _error_document(scope, PassbackError("the server met an unexpected error"), None)


def _error_document(
    scope: Scope, error: PassbackError, headers: Mapping[str, str] | None
) -> Response:
    status = STATUS[error.code]
    wait = error.retry_after or (_DEFAULT_RETRY_AFTER if status in _REPEATABLE_STATUSES else None)
    extra = _EXTRA_HEADERS.get(error.code, {})
    headers = {**(headers or {}), **extra, **_retry_after_header(wait)}
    view = ErrorView(status, error.code, error.message, request_id(scope), error.details or None)
    return view_answer(scope, view, headers)


def failure_answer(scope: Scope, failed: Failed, /, *, headers: Mapping[str, str]) -> Response:
    """Return the failure of a run, of which nothing was sent yet, as an error's response.

    It has `Retry-After` only if the failure itself names a time.
    """
    status = STATUS.get(failed.code, STATUS["internal"])
    view = ErrorView(status, failed.code, failed.message, request_id(scope))
    return view_answer(scope, view, {**headers, **_retry_after_header(failed.retry_after)})


def view_answer(scope: Scope, view: ErrorView, headers: Mapping[str, str], /) -> Response:
    """Return an error as a response in the form of its wire, and record its code.

    The body is `{"code", "message", "details"?, "request_id"}` where the wire has no form of its
    own.
    """
    scope[_CODE_KEY] = view.code
    form: FormError | None = scope.get(_ERROR_FORM_KEY)
    if form is not None:
        own = form(view)
        status, headers = own.status or view.status, {**headers, **own.headers}
        if isinstance(own.body, str):
            known = {**_UNCACHED_HEADERS, "x-request-id": view.request_id, **headers}
            known["x-error-code"] = view.code
            return Response(own.body, status, known, media_type="text/plain")
        return json_answer(scope, own.body, status=status, headers=headers)
    details = {"details": view.details} if view.details else {}
    body = {"code": view.code, "message": view.message, **details, "request_id": view.request_id}
    return json_answer(scope, body, status=view.status, headers=headers)


def _retry_after_header(seconds: float | None) -> dict[str, str]:
    return {} if seconds is None else {"retry-after": str(max(1, math.ceil(seconds)))}
