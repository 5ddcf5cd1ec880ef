"""The order of an ACP agent's frames, checked over all that went through a connection.

An agent announces a tool call before anything else of it, asks for permission while the call is
pending, begins it, and ends it, all before it answers the prompt; after that answer it says nothing
more of the turn.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

OF_A_TURN = frozenset(
    {"user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "plan"}
    | {"tool_call", "tool_call_update"}
)
"""Updates that only a prompt or a load brings."""
FINAL = frozenset({"completed", "failed"})
_CANCELS = frozenset({"session/cancel", "session/close", "session/delete"})
_IN_ORDER = {
    "pending": {"pending", "in_progress", "failed"},
    "in_progress": {"in_progress", *FINAL},
}


@dataclass(frozen=True, slots=True)
class Frame:
    """One line that went through a connection.

    Args:
        is_sent: True if the client sent it.
        message: what it says; bytes where it is no JSON.
    """

    is_sent: bool
    message: Any


@dataclass(slots=True)
class _Session:
    """A session as the frames so far tell it.

    Attributes:
        calls: the status of each tool call.
        prompts: requests that wait for an answer.
        loads: likewise, of `session/load`.
        refused: calls that the client did not permit.
        asked: calls for which it is being asked now.
        is_cancelled: True if a cancel may have reached the prompts that wait.
        is_open: True unless it is closed or deleted.
        goes_on: True from its opening to the answer of a prompt: what was left goes on then.
    """

    calls: dict[str, str] = field(default_factory=dict)
    prompts: set[Any] = field(default_factory=set)
    loads: set[Any] = field(default_factory=set)
    resumes: set[Any] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    goes_on: bool = False
    is_cancelled: bool = False
    is_open: bool = True


def order_faults(frames: Iterable[Frame]) -> list[str]:
    """Return what was out of order, each with the number of its frame."""
    order = _Order()
    return [
        f"frame {number}: {fault}"
        for number, frame in enumerate(frames)
        if isinstance(frame.message, dict)
        for fault in (order.send if frame.is_sent else order.receive)(frame.message)
    ]


class _Order:
    def __init__(self) -> None:
        self._capabilities: Json = {}
        self._sessions: dict[str, _Session] = {}
        self._ours: dict[Any, Json] = {}
        self._theirs: dict[Any, Json] = {}
        self._stopped: set[Any] = set()
        self._terminals: dict[str, str] = {}
        self._has_tools = False

    # ------------------------------------------------------------ of the client
    def send(self, message: Json) -> Iterator[str]:
        """Take note of what the client sends, which may be wrong on purpose."""
        method, params = message.get("method"), message.get("params")
        params = params if isinstance(params, dict) else {}
        if "result" in message or "error" in message:
            self._note_answer(message)
            return
        if "id" in message and _is_key(message["id"]):
            self._ours[message["id"]] = message
        self._has_tools |= "passback" in (params.get("_meta") or {})
        session = self._sessions.get(_text(params.get("sessionId")))
        if method == "$/cancel_request" and _is_key(params.get("requestId")):
            self._stopped.add(params.get("requestId"))
        elif method in {"session/load", "session/resume"}:
            self._enter(message, params)
        elif session is not None and method == "session/prompt" and "id" in message:
            session.prompts.add(message.get("id"))
        elif session is not None and method in _CANCELS:
            session.is_cancelled = True
        yield from ()

    def _enter(self, message: Json, params: Json) -> None:
        session = self._sessions.setdefault(_text(params.get("sessionId")), _Session())
        session.is_open = session.goes_on = True
        if message["method"] == "session/load":
            session.loads.add(message.get("id"))
            session.calls.clear()
        else:
            session.resumes.add(message.get("id"))

    def _note_answer(self, message: Json) -> None:
        asked = self._theirs.pop(message.get("id"), None)
        if asked is None:
            return
        method, params = asked["method"], asked["params"]
        if method == "session/request_permission":
            call, session = params["toolCall"]["toolCallId"], self._sessions[params["sessionId"]]
            session.asked.discard(call)
            result = message.get("result")
            outcome = result.get("outcome") if isinstance(result, dict) else None
            chosen = outcome.get("optionId") if isinstance(outcome, dict) else None
            kinds = {each["optionId"]: each["kind"] for each in params["options"]}
            if not kinds.get(chosen, "").startswith("allow"):
                session.refused.add(call)
        elif method == "terminal/create" and "result" in message:
            self._terminals[message["result"]["terminalId"]] = params["sessionId"]

    # ------------------------------------------------------------ of the agent
    def receive(self, message: Json) -> Iterator[str]:
        """Return what is wrong with the place of a frame that the agent has sent."""
        if "method" not in message:
            return self._answer(message)
        params = message.get("params") or {}
        if "id" in message:
            return self._request(message, params)
        if message["method"] == "$/cancel_request":
            self._withdraw(params.get("requestId"))
        return self._update(params) if message["method"] == "session/update" else iter(())

    def _withdraw(self, key: object) -> None:
        """Take note that the agent waits no more for a permission; what is answered now is late."""
        asked = self._theirs.get(key)
        if asked is not None and asked["method"] == "session/request_permission":
            del self._theirs[key]
            params = asked["params"]
            self._sessions[params["sessionId"]].asked.discard(params["toolCall"]["toolCallId"])

    def _answer(self, message: Json) -> Iterator[str]:
        key = message.get("id")
        if key is None and "error" in message:
            return  # of a line that could not be read
        asked = self._ours.pop(key, None)
        if asked is None:
            yield f"answers {key!r}, which waits for no answer"
            return
        given = asked.get("params")
        params: Json = given if isinstance(given, dict) else {}
        result = message.get("result") or {}
        if asked.get("method") == "initialize" and "result" in message:
            self._capabilities = params.get("clientCapabilities") or {}
        if asked.get("method") == "session/new" and "sessionId" in result:
            if result["sessionId"] in self._sessions:
                yield f"makes session {result['sessionId']!r} a second time"
            self._sessions[result["sessionId"]] = _Session()
        session = self._sessions.get(_text(params.get("sessionId")))
        if session is not None:
            yield from self._answer_within(session, asked, message)

    def _answer_within(self, session: _Session, asked: Json, message: Json) -> Iterator[str]:
        key = asked.get("id")
        session.loads.discard(key)
        session.resumes.discard(key)
        if asked.get("method") in {"session/close", "session/delete"} and "result" in message:
            session.is_open = False
            if session.prompts:
                yield f"closes a session before the answers of its prompts {session.prompts}"
        if key not in session.prompts:
            return
        session.prompts.discard(key)
        session.goes_on = False
        open_calls = {call: status for call, status in session.calls.items() if status not in FINAL}
        if open_calls:
            yield f"answers a prompt before its calls have ended: {open_calls}"
        kept = [name for name, owner in self._terminals.items() if owner == _session_of(asked)]
        if kept:
            yield f"answers a prompt without having released the terminals {kept}"
        cancelled = (message.get("result") or {}).get("stopReason") == "cancelled"
        if cancelled and not session.is_cancelled and key not in self._stopped:
            yield "answers 'cancelled' to a prompt that nobody cancelled"
        if not session.prompts:
            session.is_cancelled = False

    def _request(self, message: Json, params: Json) -> Iterator[str]:
        method, key = message["method"], message["id"]
        if key in self._theirs:
            yield f"asks {method} with the id {key!r} of a request that waits"
        self._theirs[key] = message
        if not self._offers(method):
            yield f"asks {method}, which the client does not offer"
        session = self._sessions.get(_text(params.get("sessionId")))
        if session is not None:
            yield from _asking_faults(session, method, params)
        elif "requestId" not in params:
            yield f"asks {method} for a session that the client does not know"
        yield from self._terminal_faults(method, params)

    def _terminal_faults(self, method: str, params: Json) -> Iterator[str]:
        if not method.startswith("terminal/") or method == "terminal/create":
            return
        name = params["terminalId"]
        if name not in self._terminals:
            yield f"asks {method} for {name!r}, which is no terminal that is there"
        if method == "terminal/release":
            self._terminals.pop(name, None)

    def _offers(self, method: str) -> bool:
        offered = self._capabilities
        files, forms = offered.get("fs") or {}, offered.get("elicitation") or {}
        # a client offers both methods of files or gets neither
        both = files.get("readTextFile") is True and files.get("writeTextFile") is True
        known: dict[str, bool] = {
            "session/request_permission": True,
            "fs/read_text_file": both,
            "fs/write_text_file": both,
            "elicitation/create": forms.get("form") is not None,
            "_passback/tool_call": self._has_tools,
        }
        return known.get(method, method.startswith("terminal/") and offered.get("terminal") is True)

    # ------------------------------------------------------------ updates
    def _update(self, params: Json) -> Iterator[str]:
        session, update = self._sessions.get(_text(params.get("sessionId"))), params["update"]
        kind = update["sessionUpdate"]
        if session is None:
            yield f"sends {kind} before the client knows the session"
            return
        if not session.is_open:
            yield f"sends {kind} to a session that is closed"
        if kind in OF_A_TURN and not (session.prompts or session.loads or session.goes_on):
            yield f"sends {kind} outside of a prompt"
        if kind in OF_A_TURN and session.resumes:
            yield f"replays {kind} while a session is resumed"
        if kind == "user_message_chunk" and not session.loads:
            yield "repeats what the user says"
        needed = {"notice": "notices", "compaction_update": "compaction"}
        needed["compaction_summary_chunk"] = "compaction"
        offered = self._capabilities.get("session") or {}
        if kind in needed and offered.get(needed[kind]) is None:
            yield f"sends {kind}, which the client does not offer to show"
        if kind in _OF_CALLS:
            yield from _OF_CALLS[kind](session, update)
            yield from self._shown_terminals(update)

    def _shown_terminals(self, update: Json) -> Iterator[str]:
        for shown in update.get("content") or ():
            if shown["type"] == "terminal" and shown["terminalId"] not in self._terminals:
                yield f"shows the terminal {shown['terminalId']!r}, which is not there"


def _announced(session: _Session, update: Json) -> Iterator[str]:
    call, status = update["toolCallId"], update.get("status") or "pending"
    if call in session.calls:
        yield f"announces the call {call!r} a second time"
    if status != "pending" and not session.loads:
        yield f"announces the call {call!r} as {status}"
    session.calls[call] = status


def _changed(session: _Session, update: Json) -> Iterator[str]:
    call = update["toolCallId"]
    before = session.calls.get(call)
    if before is None:
        yield f"changes the call {call!r} before it is announced"
        before = "pending"
    status = update.get("status") or before
    session.calls[call] = status
    if session.loads:
        return
    if before in FINAL:
        yield f"changes the call {call!r}, which is {before}"
    elif status not in _IN_ORDER[before]:
        yield f"changes the call {call!r} from {before} to {status}"
    if call in session.asked and status != "pending":
        yield f"changes the call {call!r} to {status} while it asks for permission"
    if call in session.refused and status in {"in_progress", "completed"}:
        yield f"changes the call {call!r}, which was refused, to {status}"


_OF_CALLS: dict[str, Callable[[_Session, Json], Iterator[str]]] = {
    "tool_call": _announced,
    "tool_call_update": _changed,
}


def _asking_faults(session: _Session, method: str, params: Json) -> Iterator[str]:
    """Return what is wrong with the moment at which an agent asks something."""
    if method == "terminal/release":
        return  # of a terminal that came late, it is right at any moment
    if not (session.prompts or session.goes_on):
        yield f"asks {method} outside of a prompt"
    elif method == "session/request_permission":
        call = params["toolCall"]["toolCallId"]
        if (status := session.calls.get(call)) != "pending":
            yield f"asks for permission for the call {call!r}, which is {status}"
        session.asked.add(call)
    elif method == "_passback/tool_call":
        if (status := session.calls.get(params["toolCallId"])) != "in_progress":
            yield f"passes the call {params['toolCallId']!r} on, which is {status}"
    elif method != "elicitation/create" and not _open(session):
        yield f"asks {method} while no call is open"


def _open(session: _Session) -> list[str]:
    return [call for call, status in session.calls.items() if status not in FINAL]


def _session_of(message: Json) -> str:
    return _text(message["params"].get("sessionId"))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _is_key(value: Any) -> bool:
    return isinstance(value, (int, str))
