"""A route whose endpoint gives an ASGI response, and whose errors are told as JSON."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from http import HTTPStatus
from urllib.parse import unquote

from starlette.requests import Request
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send
from typing_extensions import override

from passback.core.errors import BadRequest, NotFound, PassbackError
from passback.transport.http import error_answer, json_answer, request_id

logger = logging.getLogger(__name__)


class Endpoint(Route):
    """Matches a path as it was sent, so that a parameter may hold an encoded slash.

    A `PassbackError` of the endpoint, or of its response before that has sent anything, becomes an answer. This is in
    the place of Starlette's exception handling, which wraps `send` three times: three coroutines for every chunk.
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
        try:
            response = await self._response(scope, receive)
            await response(scope, receive, send)
        except PassbackError as error:
            await error_answer(scope, error)(scope, receive, send)

    async def _response(self, scope: Scope, receive: Receive) -> ASGIApp:
        if scope["method"] not in self._allowed:
            return _wrong_method(scope, self._allowed)
        if scope.get("raw_path") is not None:
            scope["path_params"] = _decoded(scope["path_params"])
        try:
            return await self._answer(Request(scope, receive))
        except PassbackError:
            raise
        except Exception:  # the request's boundary: the log gets the error, the client does not
            logger.exception("request %s broken", request_id(scope))
            return error_answer(scope, PassbackError("the server met an unexpected error"))


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
