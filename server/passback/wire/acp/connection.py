"""One editor: its requests, each answered once, and the sessions that it has opened."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

import anyio
import anyio.abc
from pydantic import JsonValue

from passback.core.changes import ConversationPlace, ListedConversation
from passback.core.conversation_settings import ConversationSettings
from passback.core.errors import (
    BadRequest,
    ConfigurationError,
    Conflict,
    InvalidRequest,
    NotFound,
    PassbackError,
    Refused,
    Unauthenticated,
    UnknownConversation,
)
from passback.core.ids import new_conversation_id
from passback.core.messages import ConversationKey, OwnerId
from passback.core.toolsets import ServerTools
from passback.http.requests import check_conversation_id, parse_place
from passback.http.wires import Services
from passback.native.declarations import parse_tools
from passback.native.times import utc_timestamp
from passback.streams.jsonrpc import (
    CANCEL_REQUEST,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    REQUEST_CANCELLED,
    Notification,
    Peer,
    Request,
    RequestId,
    RpcError,
)
from passback.wire.acp.answering import Editor
from passback.wire.acp.client_tools import RESOURCE_NOT_FOUND
from passback.wire.acp.modes import check_mode, efforts
from passback.wire.acp.posted import (
    Authenticate,
    CancelRequest,
    ClientAbilities,
    Initialize,
    ListSessions,
    LoadSession,
    NewSession,
    NoParameters,
    OfSession,
    Prompt,
    ResumeSession,
    SetMode,
    SetOption,
    read_params,
    read_prompt,
    read_server,
)
from passback.wire.acp.prompts import LeftRun
from passback.wire.acp.prompts import Prompt as OpenPrompt
from passback.wire.acp.session import Beginning, Session

logger = logging.getLogger(__name__)

VERSION: Final = 1  # of the protocol
AUTH_REQUIRED: Final = -32000
_SESSIONS: Final = 100  # open at once, of one editor
_LISTED: Final = 50  # sessions of one page
_LIST_READS: Final = 20  # of the store, for one page
# methods that are not interrupted: half of an end would leave servers of tools behind
_ENDINGS: Final = frozenset({"logout", "session/close", "session/delete"})


class Client(Protocol):
    """The connection to an editor."""

    @property
    def owner(self) -> OwnerId | None:
        """The owner of its sessions; None until it has authenticated."""
        ...

    @property
    def may_list(self) -> bool:
        """True if it may see all sessions of its owner."""
        ...

    @property
    def needs_key(self) -> bool:
        """True if it authenticates by a key."""
        ...

    @property
    def may_start_programs(self) -> bool:
        """True if MCP servers that it names are started: they run as the user of this process."""
        ...

    @property
    def frame_bytes(self) -> int:
        """The size that a message of it may have."""
        ...

    def authenticate(self, key: str | None, /) -> None:
        """Take the owner of a key, or without one of the key that was set for it.

        Raises:
            Unauthenticated: there is no key, or it is not valid.
        """
        ...

    def send(self, text: str, /) -> object: ...

    async def receive(self) -> str | bytes | None: ...

    async def wait_until_sent(self) -> None: ...


@dataclass(slots=True)
class Reply:
    """The answer to a request, and what follows it."""

    result: JsonValue
    after: Callable[[], None] | None = None


_Handle: TypeAlias = Callable[[], Awaitable[Reply]]


class Connection:
    """Serves one editor.

    Args:
        services: the runs and the limits.
        client: the connection to it.
        currency: of the prices.
    """

    def __init__(self, services: Services, client: Client, currency: str, /) -> None:
        self._services = services
        self._runs = services.runs
        self._client = client
        self._currency = currency
        depth = services.limits.depth
        self._peer = Peer(client.send, depth=depth, frame_bytes=client.frame_bytes)
        self._opening = anyio.Lock()
        self._sessions: dict[str, Session] = {}
        self._abilities: ClientAbilities | None = None
        self._logged_out = False
        self._stops: dict[RequestId, Callable[[], None]] = {}
        self._tasks: anyio.abc.TaskGroup
        # what the next message may rely on is done by these before the request's task begins
        self._takers: Mapping[str, Callable[[Request], _Handle]] = {
            "initialize": self._take_initialize,
            "session/prompt": self._take_prompt,
        }
        self._handlers: Mapping[str, Callable[[Request], Awaitable[Reply]]] = {
            "authenticate": self._authenticate,
            "logout": self._logout,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/list": self._list,
            "session/close": self._close,
            "session/delete": self._delete,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_option,
        }

    async def serve(self) -> None:
        """Serve the editor until it leaves, or the server stops. Runs that go on are not ended."""
        try:
            async with anyio.create_task_group() as self._tasks:
                while (frame := await self._client.receive()) is not None:
                    message = self._peer.read(frame)
                    if isinstance(message, Request):
                        self._take_request(message)
                    elif message is not None:
                        self._take_notification(message)
                self._peer.close()
                self._tasks.cancel_scope.cancel()
        finally:
            self._peer.close()

    # ---------------------------------------------------------------- messages
    def _take_request(self, request: Request) -> None:
        scope = anyio.CancelScope()
        # the next message may be about this one: it is known before its task begins
        if request.method not in _ENDINGS:
            self._stops[request.id] = scope.cancel
        try:
            handle = self._find_handler(request)
        except (PassbackError, RpcError) as error:
            self._stops.pop(request.id, None)
            self._peer.refuse(request, rpc_error(error))
        else:
            self._tasks.start_soon(self._answer, request, handle, scope)

    def _find_handler(self, request: Request) -> _Handle:
        """Return what answers a request. Raises for one that cannot be answered now."""
        method = request.method
        if method not in self._takers and method not in self._handlers:
            raise RpcError(METHOD_NOT_FOUND, "there is no such method")
        if self._abilities is None and method != "initialize":
            raise RpcError(INVALID_REQUEST, "initialize has to come first")
        if method.startswith("session/"):
            self._check_owner()
        take = self._takers.get(method)
        return partial(self._handlers[method], request) if take is None else take(request)

    async def _answer(self, request: Request, handle: _Handle, scope: anyio.CancelScope) -> None:
        reply: Reply | None = None
        error = RpcError(REQUEST_CANCELLED, "the request was cancelled")
        with scope:
            try:
                reply = await handle()
            except (PassbackError, RpcError) as raised:
                error = rpc_error(raised)
            except Exception:  # a request's boundary: the log has the error, the editor has not
                logger.exception("a request of an editor failed")
                error = RpcError(INTERNAL_ERROR, "the server met an unexpected error")
        self._stops.pop(request.id, None)
        if reply is None:
            self._peer.refuse(request, error)
            return
        self._peer.answer(request, reply.result)
        if reply.after is not None:
            reply.after()

    def _take_notification(self, message: Notification) -> None:
        try:
            match message.method:
                case "session/cancel":
                    session = self._sessions.get(read_params(OfSession, message.params).session_id)
                    if session is not None:
                        self._tasks.start_soon(session.stop, session.interrupt())
                case method if method == CANCEL_REQUEST:
                    request_id = read_params(CancelRequest, message.params).request_id
                    if (stop := self._stops.get(request_id)) is not None:
                        stop()
                case _:  # of a newer version, or an extension
                    pass
        except InvalidRequest:
            pass  # a notification is never answered

    # ---------------------------------------------------------------- the connection
    def _take_initialize(self, request: Request) -> _Handle:
        sent = read_params(Initialize, request.params)
        self._abilities = sent.client_capabilities
        return self._introduce

    async def _introduce(self) -> Reply:
        media = self._runs.media()
        key: dict[str, JsonValue] = {
            "id": "api-key",
            "name": "API key",
            "description": "A key of this server: in PASSBACK_ACP_KEY, or in _meta as apiKey.",
        }
        local: dict[str, JsonValue] = {
            "id": "local",
            "name": "This computer",
            "description": "No key is needed.",
        }
        return Reply(
            {
                "protocolVersion": VERSION,
                "agentInfo": {
                    "name": "passback",
                    "title": "passback",
                    "version": self._services.version,
                },
                "agentCapabilities": {
                    "loadSession": True,
                    "promptCapabilities": {
                        "image": "image" in media,
                        "audio": "audio" in media,
                        "embeddedContext": True,
                    },
                    "mcpCapabilities": {"http": False, "sse": False},
                    "sessionCapabilities": {
                        "list": {},
                        "resume": {},
                        "close": {},
                        "delete": {},
                        "additionalDirectories": {},
                    },
                    "auth": {"logout": {}},
                    "_meta": {"passback": {"toolCall": True}},
                },
                "authMethods": [key if self._client.needs_key else local],
            }
        )

    async def _authenticate(self, request: Request) -> Reply:
        sent = read_params(Authenticate, request.params)
        expected = "api-key" if self._client.needs_key else "local"
        if sent.method_id != expected:
            raise InvalidRequest(f"methodId: the only method is {expected}")
        self._client.authenticate(sent.api_key)
        self._logged_out = False
        return Reply({})

    async def _logout(self, request: Request) -> Reply:
        read_params(NoParameters, request.params)
        self._logged_out = self._client.needs_key
        for session_id in tuple(self._sessions):
            await self._end(session_id)
        return Reply({})

    # ---------------------------------------------------------------- sessions
    def _check_owner(self) -> OwnerId:
        """Return the owner of the sessions. Raises Unauthenticated if there is none (any more)."""
        owner = self._client.owner
        if owner is None or self._logged_out:
            raise Unauthenticated("authenticate first")
        return owner

    def _check_still(self, owner: OwnerId) -> None:
        """Raise Unauthenticated if the sessions have no owner any more, or another one."""
        if self._check_owner() != owner:
            raise Unauthenticated("another owner has authenticated meanwhile")

    def _session(self, session_id: str) -> Session:
        session = self._sessions.get(session_id)
        if session is None or session.key.owner != self._client.owner:
            raise UnknownConversation("there is no such session here: open it by session/load")
        return session

    async def _new(self, request: Request) -> Reply:
        sent = read_params(NewSession, request.params)
        key = ConversationKey(self._check_owner(), new_conversation_id())
        async with self._opening:
            beginning = await self._read_beginning(key, sent, ConversationSettings())
            await self._runs.create(key, settings=beginning.settings)
            session = self._begin(beginning)
            self._enter(session)
        return Reply({"sessionId": key.id, **_state_of(session)}, self._after_opening(session))

    async def _load(self, request: Request) -> Reply:
        session, after = await self._reopen(read_params(LoadSession, request.params), replays=True)
        return Reply(_state_of(session), after)

    async def _resume(self, request: Request) -> Reply:
        session, after = await self._reopen(
            read_params(ResumeSession, request.params), replays=False
        )
        return Reply(_state_of(session), after)

    async def _reopen(
        self, sent: LoadSession, *, replays: bool
    ) -> tuple[Session, Callable[[], None]]:
        """Open a conversation that exists; return what follows the answer."""
        key = ConversationKey(self._check_owner(), check_conversation_id(sent.session_id))
        async with self._opening:
            known = (await self._runs.status(key)).settings
            beginning = await self._read_beginning(key, sent, known)
            opened = self._sessions.get(key.id)
            if opened is not None and opened.is_busy:
                raise Conflict("a prompt goes on in this session: cancel it first")
            await self._end(key.id)  # it is opened anew
            await self._keep_folders(beginning)
            session = self._begin(beginning)
            try:
                left = await session.restore(shows=replays)
                self._enter(session)
            finally:
                if key.id not in self._sessions:  # also if the request is cancelled
                    self._tasks.start_soon(session.close)
        tell_commands = self._after_opening(session)
        prompt = session.open_prompt(is_left=True)

        def after() -> None:
            tell_commands()
            self._tasks.start_soon(self._go_on, session, prompt, left)

        return session, after

    async def _keep_folders(self, beginning: Beginning) -> None:
        """Store the folders of a session; its other settings are as they are stored now."""
        stored = (await self._runs.status(beginning.key)).settings
        given = beginning.settings
        beginning.settings = replace(stored, cwd=given.cwd, directories=given.directories)
        if beginning.settings != stored:
            await self._runs.configure(beginning.key, beginning.settings)

    async def _go_on(self, session: Session, prompt: OpenPrompt, left: LeftRun | None) -> None:
        try:
            await session.go_on(prompt, left)
        except Exception:  # its boundary, as that of a request
            logger.exception("what was left of a session failed")

    async def _read_beginning(
        self, key: ConversationKey, sent: NewSession, known: ConversationSettings
    ) -> Beginning:
        if key.id not in self._sessions and len(self._sessions) >= _SESSIONS:
            raise Conflict(f"{_SESSIONS} sessions are open: close one first")
        settings = replace(
            known, cwd=sent.cwd, directories=tuple(sent.additional_directories or ())
        )
        servers = self._make_servers(sent)
        declared = await parse_tools(sent.tools, self._services.limits, key)
        return Beginning(key, settings, servers, declared)

    def _make_servers(self, sent: NewSession) -> Sequence[ServerTools]:
        """Return the MCP servers of a session, not connected yet. Raises InvalidRequest."""
        given = [read_server(each, sent.cwd) for each in sent.mcp_servers]
        if not given:
            return ()
        make = self._services.tool_server
        if not self._client.may_start_programs:
            raise InvalidRequest(
                "mcpServers: over a WebSocket no programs are started on the server's machine; "
                "leave them out"
            )
        if make is None:
            raise InvalidRequest(
                "mcpServers: the package mcp is missing: pip install passback[acp]"
            )
        made: dict[str, ServerTools] = {}
        for server in given:
            try:
                toolset = make(server, taken=made)
            except ConfigurationError as error:
                raise InvalidRequest(f"mcpServers: {error.message}") from None
            made[toolset.name] = toolset
        return [*made.values()]

    def _begin(self, beginning: Beginning) -> Session:
        """Return a new session that runs, and that no request reaches yet. Raises as `_enter`."""
        self._check_still(beginning.key.owner)
        editor = Editor(
            self._peer, self._client.wait_until_sent, self._abilities or ClientAbilities()
        )
        session = Session(self._services, editor, beginning, self._currency)
        self._tasks.start_soon(session.run)
        return session

    def _enter(self, session: Session) -> None:
        """Let requests reach a session. Raises Unauthenticated if its owner has logged out."""
        self._check_still(session.key.owner)
        self._sessions[session.key.id] = session

    def _after_opening(self, session: Session) -> Callable[[], None]:
        commands = [
            {"name": each.name.removeprefix("/"), "description": each.description}
            for each in self._runs.commands()
        ]
        update = {"sessionUpdate": "available_commands_update", "availableCommands": commands}
        return lambda: session.send([update] if commands else [])

    async def _end(self, session_id: str) -> None:
        """Close a session, if it is open."""
        session = self._begin_end(session_id)
        if session is not None:
            await session.closed.wait()

    def _begin_end(self, session_id: str) -> Session | None:
        """Begin to close a session, in a task that no request can cancel; None: it is not open."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._tasks.start_soon(session.close)
        return session

    async def _list(self, request: Request) -> Reply:
        sent = read_params(ListSessions, request.params)
        if not self._client.may_list:
            raise Unauthenticated("without API keys, sessions are listed on this computer only")
        cursor = sent.cursor
        after = None if cursor is None else ConversationPlace(*parse_place(cursor, "cursor"))
        owner = self._check_owner()
        found: list[ListedConversation] = []
        for _read in range(_LIST_READS):
            page = await self._runs.conversations(owner, after=after, limit=_LISTED)
            found += [
                each
                for each in page.conversations
                # one of another protocol has no folder: it may be opened in any
                if sent.cwd is None or each.status.settings.cwd in {"", sent.cwd}
            ]
            after = page.next
            if after is None or len(found) >= _LISTED:
                break
        if len(found) > _LISTED:
            found = found[:_LISTED]
            after = found[-1].place
        reply: dict[str, Any] = {"sessions": [_listed_view(each, sent.cwd) for each in found]}
        if after is not None:
            reply["nextCursor"] = f"{after.updated}-{after.tag}"
        return Reply(reply)

    async def _close(self, request: Request) -> Reply:
        await self._end(read_params(OfSession, request.params).session_id)
        return Reply({})

    async def _delete(self, request: Request) -> Reply:
        session_id = read_params(OfSession, request.params).session_id
        key = ConversationKey(self._check_owner(), check_conversation_id(session_id))
        await self._end(session_id)
        with suppress(UnknownConversation):  # it is gone
            await self._runs.delete(key)
        return Reply({})

    # ---------------------------------------------------------------- in a session
    def _take_prompt(self, request: Request) -> _Handle:
        """Put a prompt in its session's queue; return what waits for its answer."""
        sent = read_params(Prompt, request.params)
        session = self._session(sent.session_id)
        content = read_prompt(sent, self._services.limits.attachment_bytes)
        prompt = session.open_prompt()

        def stop() -> None:
            prompt.cancel()
            self._tasks.start_soon(session.stop, (prompt,))

        self._stops[request.id] = stop

        async def answer() -> Reply:
            return Reply({"stopReason": await session.answer(prompt, content)})

        return answer

    async def _set_mode(self, request: Request) -> Reply:
        sent = read_params(SetMode, request.params)
        session = self._session(sent.session_id)
        await session.settings.change(mode=check_mode(sent.mode_id))
        update = {"sessionUpdate": "config_option_update", "configOptions": session.options}
        return Reply({}, lambda: session.send([update]))

    async def _set_option(self, request: Request) -> Reply:
        sent = read_params(SetOption, request.params)
        session = self._session(sent.session_id)
        value = sent.value
        match sent.config_id:
            case "mode" if isinstance(value, str):
                await session.settings.change(mode=check_mode(value))
                updates = [{"sessionUpdate": "current_mode_update", "currentModeId": value}]
            case "model" if isinstance(value, str) and value in self._runs.models():
                await session.settings.change(model=value)
                updates = []
            case "effort" if isinstance(value, str) and value in efforts(self._runs.effort()):
                await session.settings.change(effort=value)
                updates = []
            case _:
                raise InvalidRequest("there is no such option, or it has no such value")
        return Reply({"configOptions": [*session.options]}, lambda: session.send(updates))


def _state_of(session: Session) -> dict[str, Any]:
    return {"modes": session.modes, "configOptions": session.options}


def _listed_view(listed: ListedConversation, cwd: str | None) -> dict[str, Any]:
    status = listed.status
    view: dict[str, Any] = {
        "sessionId": listed.key.id,
        "cwd": status.settings.cwd or cwd or "/",
        "updatedAt": utc_timestamp(status.updated),
    }
    if status.settings.directories:
        view["additionalDirectories"] = list(status.settings.directories)
    if status.title:
        view["title"] = status.title
    return view


def rpc_error(error: PassbackError | RpcError, /) -> RpcError:
    """Return an error as the editor sees it."""
    match error:
        case RpcError():
            return error
        case Refused():
            code = AUTH_REQUIRED
        case NotFound():
            code = RESOURCE_NOT_FOUND
        case BadRequest() | InvalidRequest():
            code = INVALID_PARAMS
        case _:
            code = INTERNAL_ERROR
    data: dict[str, Any] = {"code": error.code, "retryable": error.retryable}
    if error.retry_after is not None:
        data["retryAfter"] = error.retry_after
    if error.details:
        data["details"] = error.details
    return RpcError(code, error.message, data)
