"""The server's HTTP routes: one request each, without retries. It translates errors of httpx."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import quote, unquote
from uuid import uuid4

import anyio
import httpx

from passback_client.backoff import parse_retry_after
from passback_client.contact import (
    TRANSIENT_STATUSES,
    Contact,
    foreign_answer_error,
    is_events,
    no_answer_message,
)
from passback_client.errors import (
    BadAnswer,
    BadSetup,
    Busy,
    CursorExpired,
    Facts,
    LimitExceeded,
    PassbackError,
    Refused,
    Unreachable,
)
from passback_client.events import JsonObject, Left
from passback_client.fields import optional_text, read_object
from passback_client.limits import Limits, Retry
from passback_client.sse import SseDecoder, SseEvent
from passback_client.text import write_json

ADDRESS = "the server's address, such as 'http://127.0.0.1:8000'"
_ERROR_BYTES = 64 * 1024
_MESSAGE_CHARS = 1000
_NAME_CHARS = 256
_DRAIN_SECONDS = 1
_MOST_PORT = 65535
_CONNECT_SECONDS = 10
_JSON = {"content-type": "application/json"}
_KINDS: Mapping[str, type[Refused]] = {
    "conversation_busy": Busy,
    "cursor_expired": CursorExpired,
}


@dataclass(frozen=True, slots=True)
class Post:
    """A post, as bytes: a retry sends the same bytes.

    Args:
        body: JSON.
        key: the idempotency key.
        agent_id: the agent to ask, if the server has several.

    Raises:
        BadSetup: the key cannot be sent, or the agent's name is invalid.
    """

    body: bytes
    key: str = field(default_factory=lambda: str(uuid4()))
    agent_id: str | None = None

    def __post_init__(self) -> None:
        if not (0 < len(self.key) <= _NAME_CHARS and _is_visible(self.key)) or '"' in self.key:
            raise BadSetup(f"a post's key must have 1 to {_NAME_CHARS} visible ASCII characters")
        if self.agent_id is not None and not 0 < len(self.agent_id) <= _NAME_CHARS:
            raise BadSetup(f"an agent's name must have 1 to {_NAME_CHARS} characters")

    @property
    def path(self) -> str:
        agent = self.agent_id
        prefix = "" if agent is None else f"v1/aibot/bots/{_path_segment(agent)}/"
        return f"{prefix}send-message"


@dataclass(frozen=True, slots=True)
class RunRef:
    """A run to follow: a named one, the one of a cursor, or the newest."""

    conversation_id: str
    run_id: str | None = None
    cursor: str | None = None


class Connection:
    """One streamed answer.

    Attributes:
        conversation_id: as the server names it.
        run_id: of its events; None if no run began.
        left: the rest of the limits of conversation and owner when it began, if known.
    """

    def __init__(self, response: httpx.Response, max_chars: int) -> None:
        self.conversation_id = unquote(response.headers.get("x-conversation-id", ""))
        self.run_id: str | None = response.headers.get("x-run-id")
        self.left = _budget_left(response.headers)
        self._response = response
        self._chunks = response.aiter_bytes()
        self._decoder = SseDecoder(max_chars)

    @property
    def cursor(self) -> str:
        """The place to resume after, empty if there is none yet."""
        return self._decoder.last_event_id

    @property
    def retry(self) -> float | None:
        """Seconds that the server asks to wait before a reconnect."""
        return None if self._decoder.retry is None else self._decoder.retry / 1000

    @property
    def pings(self) -> int:
        """Number of comments behind the first, which opens the stream."""
        return max(0, self._decoder.comments - 1)

    async def read(self) -> Sequence[SseEvent]:
        """Return the events that the next bytes complete, perhaps none.

        Raises:
            Unreachable: the connection ended, for whatever reason.
            LimitExceeded: one event is too large.
        """
        try:
            chunk = await anext(self._chunks)
        except StopAsyncIteration:
            raise Unreachable("the stream broke off") from None
        except httpx.RequestError as error:
            raise Unreachable("the connection to the server was lost") from error
        return self._decoder.feed(chunk)

    async def finish(self) -> None:
        """Read the end after the last event, so that the connection can be reused, then close."""
        with suppress(httpx.RequestError), anyio.move_on_after(_DRAIN_SECONDS):
            await anext(self._chunks, b"")
        await self.aclose()

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True):
            await self._response.aclose()


class Channel:
    """Makes requests to one server.

    Attributes:
        contact: whether it has ever answered.

    Raises:
        BadSetup: the address or the key is invalid.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None,
        *,
        limits: Limits,
        retry: Retry,
        transport: httpx.AsyncBaseTransport | None,
    ) -> None:
        self._base = _checked_url(url)
        self.contact = Contact()
        self._limits = limits
        self._retry = retry
        self._key = api_key
        self._http = httpx.AsyncClient(
            headers={"accept-encoding": "identity"} | _authorization(api_key),
            transport=transport,
            follow_redirects=False,
            # each stream holds a connection as long as it is read
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
        )

    async def aclose(self) -> None:
        await self._http.aclose()

    async def post(self, post: Post) -> Connection:
        """Post messages. Raises PassbackError, as all methods."""
        headers = {**_JSON, "idempotency-key": f'"{post.key}"'}
        request = self._request("POST", post.path, headers, content=post.body)
        return await self._stream(request)

    async def follow(self, run: RunRef, include: Sequence[str]) -> Connection:
        """Read a run, from its start or after the cursor."""
        asked = {"include": ",".join(include)}
        asked |= {"runId": run.run_id} if run.run_id else {}
        path = f"{_conversation_path(run.conversation_id)}/stream"
        headers = _reading_headers(run.cursor)
        return await self._stream(self._request("GET", path, headers, params=asked))

    async def watch(
        self, conversation_id: str, cursor: str | None, include: Sequence[str]
    ) -> Connection:
        """Read all runs of a conversation, from the current one or after the cursor."""
        path = f"{_conversation_path(conversation_id)}/events"
        asked = {"include": ",".join(include)}
        headers = _reading_headers(cursor)
        return await self._stream(self._request("GET", path, headers, params=asked))

    async def agents(self) -> JsonObject:
        return await self._json(self._request("GET", "agents", {}))

    async def conversation(self, conversation_id: str) -> JsonObject:
        return await self._json(self._request("GET", _conversation_path(conversation_id), {}))

    async def conversations(self, query: Mapping[str, str]) -> JsonObject:
        return await self._json(self._request("GET", "conversations", {}, params=query))

    async def rename(self, conversation_id: str, title: str) -> JsonObject:
        path, content = _conversation_path(conversation_id), encode({"title": title})
        return await self._json(self._request("PATCH", path, _JSON, content=content))

    async def switch_branch(self, conversation_id: str, message_id: str) -> JsonObject:
        path, content = _conversation_path(conversation_id), encode({"message": message_id})
        return await self._json(self._request("POST", f"{path}/leaf", _JSON, content=content))

    async def fork(self, conversation_id: str, post: Post) -> JsonObject:
        path = f"{_conversation_path(conversation_id)}/fork"
        headers = {**_JSON, "idempotency-key": f'"{post.key}"'}
        return await self._json(self._request("POST", path, headers, content=post.body))

    async def delete(self, conversation_id: str) -> None:
        path = _conversation_path(conversation_id)
        await self._send_without_body(self._request("DELETE", path, {}))

    async def messages(self, conversation_id: str, after: int, limit: int) -> JsonObject:
        path = f"{_conversation_path(conversation_id)}/messages"
        page = {"after": str(after), "limit": str(limit)}
        return await self._json(self._request("GET", path, {}, params=page))

    async def cancel(self, conversation_id: str, run_id: str | None) -> JsonObject:
        path = f"{_conversation_path(conversation_id)}/cancel"
        named = {"runId": run_id} if run_id else {}
        return await self._json(self._request("POST", path, {}, params=named))

    async def retract(self, conversation_id: str, tool: str) -> None:
        path = f"{_conversation_path(conversation_id)}/permissions/{quote(tool, safe='')}"
        await self._send_without_body(self._request("DELETE", path, {}))

    async def claim(self, conversation_id: str, call_id: str, claimant: str, seconds: int) -> None:
        content = encode({"claimant": claimant, "seconds": seconds})
        path = _claim_path(conversation_id, call_id)
        await self._json(self._request("POST", path, _JSON, content=content))

    async def release(self, conversation_id: str, call_id: str, claimant: str) -> None:
        path, whose = _claim_path(conversation_id, call_id), {"claimant": claimant}
        await self._send_without_body(self._request("DELETE", path, {}, params=whose))

    def _request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        *,
        params: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> httpx.Request:
        url = f"{self._base}/{path}"
        silence = self._retry.silence
        connect = min(silence, self.contact.bound(self._retry) or _CONNECT_SECONDS)
        return self._http.build_request(
            method,
            url,
            headers=dict(headers),
            params=params,
            content=content,
            timeout=httpx.Timeout(silence, connect=connect),
        )

    async def _stream(self, request: httpx.Request) -> Connection:
        response = await self._send(request)
        if not is_events(response) or "x-conversation-id" not in response.headers:
            raise await self._foreign_error(response)
        self.contact.is_made = True
        return Connection(response, self._limits.frame_chars)

    async def _json(self, request: httpx.Request) -> JsonObject:
        response = await self._send(request)
        await self._check_named(response)
        body, is_whole = await _read(response, self._limits.body_bytes)
        if not is_whole:
            raise LimitExceeded("the server's answer is too large")
        try:
            fields = read_object(body)
        except BadAnswer:
            raise self._foreign_answer_error(response, body) from None
        self.contact.is_made = True
        return fields

    async def _send_without_body(self, request: httpx.Request) -> None:
        response = await self._send(request)
        await self._check_named(response)
        self.contact.is_made = True
        await response.aclose()

    async def _check_named(self, response: httpx.Response) -> None:
        """Raise BadAnswer at first contact for an answer without a request id."""
        if not self.contact.is_made and "x-request-id" not in response.headers:
            raise await self._foreign_error(response)

    async def _foreign_error(self, response: httpx.Response) -> BadAnswer:
        """Close a response that is not a passback server's, and return the error for it."""
        body = b""
        with suppress(httpx.RequestError), anyio.move_on_after(_DRAIN_SECONDS):
            body = b"" if is_events(response) else await anext(response.aiter_bytes(), b"")
        with anyio.CancelScope(shield=True):
            await response.aclose()
        return self._foreign_answer_error(response, body)

    def _foreign_answer_error(self, response: httpx.Response, body: bytes) -> BadAnswer:
        wait = parse_retry_after(response.headers.get("retry-after"))
        return foreign_answer_error(self._base, response, body, key=self._key, retry_after=wait)

    async def _send(self, request: httpx.Request) -> httpx.Response:
        if self._http.is_closed:
            raise BadSetup("the client is closed")
        try:
            response = await self._http.send(request, stream=True)
        except httpx.RequestError as error:
            known = self.contact.is_made
            told = "the server did not answer" if known else no_answer_message(self._base, error)
            raise Unreachable(told) from error
        if response.is_success:
            return response
        raise await self._refusal(response)

    async def _refusal(self, response: httpx.Response) -> PassbackError:
        body, fields = b"", JsonObject()
        with suppress(PassbackError):  # a foreign answer has no fields
            body, _ = await _read(response, _ERROR_BYTES)
            fields = read_object(body)
        code = optional_text(fields, "code")
        # a gateway's errors may have a code, too
        is_ours = bool(code and optional_text(fields, "request_id"))
        self.contact.is_made |= is_ours
        if not self.contact.is_made:
            return self._foreign_answer_error(response, body)
        return _refused_error(response, fields, code if is_ours else None)


async def _read(response: httpx.Response, limit: int) -> tuple[bytes, bool]:
    """Read and close a response; return its body, and whether that is complete."""
    body = b""
    try:
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > limit:
                return body[:limit], False
    except httpx.RequestError as error:
        raise Unreachable("the answer broke off") from error
    finally:
        with anyio.CancelScope(shield=True):
            await response.aclose()
    return body, True


def _refused_error(response: httpx.Response, fields: JsonObject, code: str | None) -> Refused:
    """Return the error of the server, or without a code that of a gateway."""
    status = response.status_code
    code = code or f"http_{status}"
    kind = _KINDS.get(code, Refused)
    facts = Facts(
        status=status,
        retryable=status in TRANSIENT_STATUSES or kind is Busy,
        retry_after=parse_retry_after(response.headers.get("retry-after")),
        request_id=optional_text(fields, "request_id"),
        details=fields.get("details"),
    )
    message = optional_text(fields, "message") or f"the server answered with status {status}"
    return kind(message[:_MESSAGE_CHARS], code=code, facts=facts)


def _budget_left(headers: httpx.Headers) -> Left | None:
    tokens, seconds, cost = (_number(headers, kind) for kind in ("tokens", "seconds", "cost"))
    left = Left(tokens=None if tokens is None else int(tokens), seconds=seconds, cost=cost)
    return None if left == Left() else left


def _number(headers: httpx.Headers, kind: str) -> float | None:
    text = headers.get(f"x-budget-left-{kind}", "")
    return float(text) if re.fullmatch(r"\d{1,15}(\.\d{1,15})?", text, re.ASCII) else None


def encode(body: JsonObject) -> bytes:
    """Raises BadSetup: something in it is not JSON."""
    try:
        return write_json(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadSetup("what is to be posted is not JSON") from error


def _checked_url(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, ValueError):
        raise BadSetup(f"url is not a URL: give {ADDRESS}") from None
    if parsed.userinfo:  # it would end up in errors, and in logs
        raise BadSetup("url contains a user or a password: remove it, and use `api_key`")
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise BadSetup(f"url is not an http: or https: address with a host: give {ADDRESS}")
    if (parsed.port or 0) > _MOST_PORT:
        raise BadSetup(f"url has a port beyond {_MOST_PORT}: give {ADDRESS}")
    if parsed.query or parsed.fragment:
        raise BadSetup("url may have a path, but no query or fragment")
    return url.rstrip("/")


def _authorization(api_key: str | None) -> dict[str, str]:
    if api_key is None:
        return {}
    if not api_key or not _is_visible(api_key):
        raise BadSetup("api_key must have visible ASCII characters only")
    return {"authorization": f"Bearer {api_key}"}


def _is_visible(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def _reading_headers(cursor: str | None) -> dict[str, str]:
    after = {"last-event-id": _checked_cursor(cursor)} if cursor else {}
    return {"accept": "text/event-stream", **after}


def _checked_cursor(cursor: str) -> str:
    if not _is_visible(cursor) or len(cursor) > 1024:
        raise BadAnswer("the id of an event cannot be sent back")
    return cursor


def _conversation_path(conversation_id: str) -> str:
    if not 0 < len(conversation_id) <= _NAME_CHARS:
        raise BadSetup(f"a conversation's id must have 1 to {_NAME_CHARS} characters")
    return f"conversations/{_path_segment(conversation_id)}"


def _claim_path(conversation_id: str, call_id: str) -> str:
    if not 0 < len(call_id) <= _NAME_CHARS:
        raise BadAnswer("the id of a call cannot be sent back")
    return f"{_conversation_path(conversation_id)}/tool-calls/{_path_segment(call_id)}/claim"


def _path_segment(name: str) -> str:
    # in a URL, `.` and `..` mean the folder and its parent
    return quote(name, safe="", errors="replace").replace(".", "%2E")
