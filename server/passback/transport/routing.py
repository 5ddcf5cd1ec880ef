"""A route whose endpoint gives an ASGI response, and whose errors are told as JSON."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from http import HTTPStatus
from urllib.parse import unquote

from starlette.requests import Request
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typing_extensions import override

from passback.core.errors import BadRequest, NotFound, PassbackError
from passback.transport.http import (
    error_answer,
    internal_error_answer,
    json_answer,
    request_id,
)
from passback.transport.sending import send_now

logger = logging.getLogger(__name__)


class Endpoint(Route):
    """Matches a path as it was sent, so that a parameter may hold an encoded slash.

    What the endpoint raises, or its response before that has sent anything, becomes an answer: a `PassbackError` with
    its own code, anything else as `internal`. What a response raises later breaks it off, so that the client sees that
    it is not whole. This is in the place of Starlette's exception handling, which wraps `send` three times: three
    coroutines for every chunk.
    """

    def __init__(
        self,
        path: str,
        endpoint: Callable[[Request], Awaitable[ASGIApp]],
        *,
        methods: Collection[str],
    ) -> None:
        super().__init__(path, endpoint, methods=methods)
        self._answer = endpoint
        self._allowed = self.methods or set()

    @override
    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        raw: bytes | None = scope.get("raw_path")
        if scope["type"] != "http" or raw is None:
            return super().matches(scope)
        return super().matches({**scope, "path": raw.decode("latin-1")})

    @override
    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        def noted(message: Message) -> Awaitable[None]:  # no coroutine of its own
            nonlocal begun
            begun = True
            return send(message)

        try:
            response = await self._response(scope, receive)
            await response(scope, receive, noted)
            return
        except PassbackError as error:
            if begun:
                logger.warning("answer to request %s broken off: %s", request_id(scope), error.code)
            refusal = None if begun else error_answer(scope, error)
        except Exception:  # the request's boundary: the log gets the error, the client does not
            told = "answer to request %s broken off" if begun else "request %s failed"
            logger.exception(told, request_id(scope))
            refusal = None if begun else internal_error_answer(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
        elif (direct := send_now(scope)) is not None:
            direct.break_off()  # elsewhere the server sees to it when the application returns

    async def _response(self, scope: Scope, receive: Receive) -> ASGIApp:
        if scope["method"] not in self._allowed:
            return _wrong_method(scope, self._allowed)
        if scope.get("raw_path") is not None:
            scope["path_params"] = _decoded(scope["path_params"])
        return await self._answer(Request(scope, receive))


async def nothing_there(scope: Scope, receive: Receive, send: Send) -> None:
    """The answer at an address that no route has."""
    error = NotFound("there is nothing at this address")
    await error_answer(scope, error)(scope, receive, send)


def _wrong_method(scope: Scope, allowed: Collection[str]) -> ASGIApp:
    status = HTTPStatus.METHOD_NOT_ALLOWED
    body: dict[str, object] = {
        "code": "method_not_allowed",
        "message": status.description,
        "request_id": request_id(scope),
    }
    return json_answer(scope, body, status=status, headers={"allow": ", ".join(sorted(allowed))})


def _decoded(parameters: Mapping[str, str]) -> dict[str, str]:
    try:
        return {name: unquote(value, errors="strict") for name, value in parameters.items()}
    except UnicodeDecodeError:
        raise BadRequest("the path is not valid UTF-8") from None
