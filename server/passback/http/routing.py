"""A route whose endpoint returns an ASGI response, and whose errors become JSON."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Final, TypeAlias
from urllib.parse import unquote

from starlette.requests import Request
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typing_extensions import override

from passback.core.errors import BadRequest, InvalidRequest, NotFound, PassbackError
from passback.hotpath.sending import send_now
from passback.http.answers import (
    ErrorView,
    error_answer,
    internal_error_answer,
    request_id,
    socket_refusal,
    view_answer,
)

logger = logging.getLogger(__name__)

# The names of a route's query parameters, by its methods. None: unknown ones are ignored.
Query: TypeAlias = Mapping[str, Collection[str]] | None

_NO_PARAMETERS: Final[Query] = MappingProxyType({})
_ROUTE_KEY = "passback.route"
_SHOWN_CHARACTERS = 64  # of a parameter's name, in an error


def route_of(scope: Scope, /) -> "Endpoint | None":
    """Return the route that answers a request; None if none was reached."""
    route: Endpoint | None = scope.get(_ROUTE_KEY)
    return route


def relative_reference(scope: Scope, path: str, /) -> str:
    """Return a path of this server, with its query, relative to the request's address.

    It leads to the same place behind a proxy that serves us below a prefix and strips it.
    """
    route: Endpoint = scope[_ROUTE_KEY]
    return "../" * (route.path.count("/") - 1) + path.removeprefix("/")


class Endpoint(Route):
    """Matches a path as it was sent, so that a parameter may hold an encoded slash.

    An error of the endpoint, or of its response before anything was sent, becomes an answer: a
    `PassbackError` with its own code, anything else with `internal`. An error of a response that
    has begun breaks it off, so that the client sees that it is not whole.
    This replaces Starlette's exception handling, which wraps `send` three times: three
    coroutines for every chunk.

    Args:
        path: its pattern.
        endpoint: gives the response.
        methods: HEAD comes with GET.
        query: the parameters that it takes. Others, and doubled ones, are refused with 422.
        log_level: the level of a request's line in the access log.
    """

    def __init__(
        self,
        path: str,
        endpoint: Callable[[Request], Awaitable[ASGIApp]],
        *,
        methods: Collection[str],
        query: Query = _NO_PARAMETERS,
        log_level: int = logging.INFO,
    ) -> None:
        super().__init__(path, endpoint, methods=methods)
        self._endpoint = endpoint
        self._allowed_methods = self.methods or set()
        self.query = query
        self.log_level = log_level

    @override
    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        # The raw path, because an escaped slash in a parameter is no separator. `_call_endpoint`
        # decodes the parameters.
        raw: bytes | None = scope.get("raw_path")
        if scope["type"] != "http" or raw is None:
            return super().matches(scope)
        return super().matches({**scope, "path": raw.decode("latin-1")})

    @override
    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False
        scope[_ROUTE_KEY] = self

        def noted(message: Message) -> Awaitable[None]:  # no coroutine of its own
            nonlocal begun
            begun = True
            return send(message)

        try:
            response = await self._call_endpoint(scope, receive)
            await response(scope, receive, noted)
            return
        except PassbackError as error:
            if begun:
                logger.warning("answer to request %s broken off: %s", request_id(scope), error.code)
            refusal = None if begun else error_answer(scope, error)
        except Exception:  # the request's boundary: the log gets the error, the client does not
            text = "answer to request %s broken off" if begun else "request %s failed"
            logger.exception(text, request_id(scope))
            refusal = None if begun else internal_error_answer(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
        elif (direct := send_now(scope)) is not None:
            direct.break_off()  # other servers break it off when the application returns

    async def _call_endpoint(self, scope: Scope, receive: Receive) -> ASGIApp:
        if scope["method"] not in self._allowed_methods:
            allowed = ", ".join(sorted(self._allowed_methods))
            message = f"this address takes only {allowed}"
            status = HTTPStatus.METHOD_NOT_ALLOWED
            view = ErrorView(status, "method_not_allowed", message, request_id(scope))
            return view_answer(scope, view, {"allow": allowed})
        given: Mapping[str, str] = scope["path_params"]
        if given and scope.get("raw_path") is not None:
            try:
                decoded = {name: unquote(text, errors="strict") for name, text in given.items()}
            except UnicodeDecodeError:
                raise BadRequest("the path is not valid UTF-8") from None
            scope["path_params"] = decoded
        request = Request(scope, receive)
        if self.query is not None and scope.get("query_string"):
            method = "GET" if request.method == "HEAD" else request.method
            _check_query(request, self.query.get(method, ()))
        return await self._endpoint(request)


async def answer_not_found(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request for an address that no route has."""
    error = NotFound("there is nothing at this address")
    if scope["type"] == "websocket":
        await socket_refusal(scope, error)(scope, receive, send)
        return
    await error_answer(scope, error)(scope, receive, send)


def _check_query(request: Request, names: Collection[str]) -> None:
    """Raise InvalidRequest for a parameter that is not in `names`, or that comes twice."""
    given = request.query_params
    if strange := given.keys() - set(names):
        name = min(strange)[:_SHOWN_CHARACTERS]
        takes = f"it takes {', '.join(names)}" if names else "it takes none"
        raise InvalidRequest(
            f"this address has no query parameter {name!r}: {takes}",
            details={"parameter": name, "available": list(names)},
        )
    for name in names if len(given.multi_items()) != len(given) else ():
        if len(given.getlist(name)) > 1:
            raise InvalidRequest(
                f"the query parameter {name} comes twice", details={"parameter": name}
            )
