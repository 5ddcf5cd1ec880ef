"""The tools that the editor executes: its files, its terminals, and those that it declares.

They are client tools like all others: the run hands their calls back, and the next run has the
results.
"""

import io
import ntpath
import posixpath
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from types import ModuleType
from typing import Any, Final

import anyio
from pydantic import JsonValue

from passback.core.errors import PassbackError
from passback.core.messages import (
    AssistantMessage,
    CallId,
    Content,
    Location,
    Message,
    Owed,
    ToolMessage,
    ToolSpec,
    single_text,
)
from passback.core.questions import ASK_USER
from passback.core.text import read_json, replace_surrogates
from passback.core.values import value
from passback.native.parts import read_result
from passback.streams.jsonrpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    ConnectionLost,
    Peer,
    RpcError,
)
from passback.wire.acp.commands import (
    OUTPUT_BYTES,
    command_key,
    command_line,
    command_result,
    command_text,
    command_title,
)
from passback.wire.acp.files import FileCache, replace_piece
from passback.wire.acp.posted import ClientAbilities
from passback.wire.acp.updates import Description, Update, text_content

RESOURCE_NOT_FOUND: Final = -32002
_READ_CHARACTERS: Final = 256 * 1024  # of a file, in one result
_COMMAND_SECONDS: Final = 120
_MAX_COMMAND_SECONDS: Final = 3600
_FILE_SECONDS: Final = 60  # in which the editor has to answer
_CREATE_SECONDS: Final = 10  # likewise, for a terminal
_MISSING: Final = re.compile(
    r"no such file|enoent|(?:file|path)\b.{0,1000}(?:not found|does not exist)",
    re.IGNORECASE | re.DOTALL,
)
_OF_PROTOCOL: Final = frozenset({INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS})
_EMPTY: Final = "(the file is empty)"

_PATH: Final[JsonValue] = {
    "type": "string",
    "minLength": 1,
    "description": "Absolute, or relative to the working directory.",
}
READ_FILE: Final = ToolSpec(
    "read_text_file",
    "Read a text file as it is in the user's editor, with changes that are not saved yet.",
    {
        "type": "object",
        "properties": {
            "path": _PATH,
            "line": {"type": "integer", "minimum": 1, "description": "The first line, from 1."},
            "limit": {"type": "integer", "minimum": 1, "description": "How many lines."},
        },
        "required": ["path"],
        "additionalProperties": False,
    },
    title="Read a file",
    kind="read",
)
WRITE_FILE: Final = ToolSpec(
    "write_text_file",
    "Write a whole text file in the user's editor. A file that exists has to be read before.",
    {
        "type": "object",
        "properties": {"path": _PATH, "content": {"type": "string"}},
        "required": ["path", "content"],
        "additionalProperties": False,
    },
    title="Write a file",
    kind="edit",
)
EDIT_FILE: Final = ToolSpec(
    "edit_text_file",
    "Replace one piece of a text file in the user's editor. The file has to be read before.",
    {
        "type": "object",
        "properties": {
            "path": _PATH,
            "old_text": {
                "type": "string",
                "minLength": 1,
                "description": "The piece, exactly as it is in the file, where it stands once.",
            },
            "new_text": {"type": "string"},
        },
        "required": ["path", "old_text", "new_text"],
        "additionalProperties": False,
    },
    title="Edit a file",
    kind="edit",
)
RUN_COMMAND: Final = ToolSpec(
    "run_command",
    "Run a command in a terminal that the user sees, and wait for its end.",
    {
        "type": "object",
        "properties": {
            "command": {
                "type": "string",
                "minLength": 1,
                "description": "A line for the shell; with `args`, a program.",
            },
            "args": {"type": "array", "items": {"type": "string"}},
            "cwd": _PATH,
            "seconds": {
                "type": "integer",
                "minimum": 1,
                "maximum": _MAX_COMMAND_SECONDS,
                "description": f"It is stopped after so many. Default: {_COMMAND_SECONDS}.",
            },
        },
        "required": ["command"],
        "additionalProperties": False,
    },
    title="Run a command",
    kind="execute",
)
_FILE_TOOLS: Final = (READ_FILE, WRITE_FILE, EDIT_FILE)
OWN_TOOLS: Final = frozenset(each.name for each in (*_FILE_TOOLS, RUN_COMMAND))

Show = Callable[[Sequence[Update]], None]
"""Shows content of a call while it is worked on."""


@value
class Result:
    """The result of a call that the editor has executed."""

    content: Content
    is_error: bool = False


@value
class Change:
    """A call that changes something, as it is decided on.

    Attributes:
        key: of decisions that last.
        subject: of such a decision, in words for the person: "Always allow ...".
        path: of the file that is changed; None for a command.
    """

    key: str
    subject: str
    path: str | None = None


class Refusal(Exception):
    """A call that is not carried out; the text says why, for the model."""


@contextmanager
def _refusals() -> Generator[None]:
    """Raise Refusal for what the editor refuses, or does not answer in time."""
    try:
        yield
    except ConnectionLost:
        raise
    except RpcError as error:
        raise Refusal(f"The editor could not do it: {error.message}") from None
    except TimeoutError:
        raise Refusal("The editor did not answer in time.") from None


class ClientTools:
    """The editor's tools in one session.

    Args:
        peer: the editor.
        session_id: the session.
        abilities: of the editor.
        cwd: the session's folder.
        declared: tools of the editor's own, called by `_passback/tool_call`.
        result_bytes: of a result.
    """

    def __init__(
        self,
        peer: Peer,
        session_id: str,
        /,
        *,
        abilities: ClientAbilities,
        cwd: str,
        declared: tuple[ToolSpec, ...] = (),
        result_bytes: int,
    ) -> None:
        self._peer = peer
        self._session_id = session_id
        self._cwd = cwd
        self._result_bytes = result_bytes
        self._paths = paths_of(cwd)
        files = abilities.fs
        # never one of them alone: what is read from the editor has to be written there, too
        own = _FILE_TOOLS if files.read_text_file and files.write_text_file else ()
        named = {each.name for each in declared}
        terminal = (RUN_COMMAND,) if abilities.terminal else ()
        self.specs = (*(each for each in (*own, *terminal) if each.name not in named), *declared)
        self._declared = named
        self._cache = FileCache()
        self._calls: dict[CallId, tuple[str, Mapping[str, Any]]] = {}

    def leave_out(self, name: str, /) -> bool:
        """Take away a tool of ours that the agent has already. False if it is none of ours."""
        if name in self._declared or name not in {each.name for each in self.specs}:
            return False
        self.specs = tuple(each for each in self.specs if each.name != name)
        return True

    def has(self, name: str, /) -> bool:
        """Return whether the editor can execute calls of this tool."""
        return any(each.name == name for each in self.specs)

    def changes_something(self, name: str, /) -> bool:
        """Return whether a person is to be asked before a call: of a tool of ours that writes."""
        return name not in self._declared and name != READ_FILE.name

    def describe(self, name: str, arguments: str, /) -> Description | None:
        """Return how a call is shown; None if it is none of a tool of ours."""
        given = _arguments_of(arguments)
        if name == ASK_USER.name:
            return Description(_first_question(given), "other")
        if name in self._declared or name not in OWN_TOOLS:
            return None
        if name == RUN_COMMAND.name:
            line, folder = command_line(given), given.get("cwd")
            shown = command_text(line, self._absolute(str(folder)) if folder else None)
            return Description(command_title(line), "execute", (), tuple(text_content(shown)))
        return self._describe_file_call(name, given)

    def change_of(self, owed: Owed, /) -> Change:
        """Return a call of a tool that changes something, as it is decided on."""
        given = _arguments_of(owed.arguments)
        if owed.name == RUN_COMMAND.name:
            folder = self._absolute(str(given.get("cwd", "")))
            return Change(command_key(given, folder), "this command")
        return Change(owed.name, "in this session", self._absolute(str(given["path"])))

    def _describe_file_call(self, name: str, given: Mapping[str, Any]) -> Description:
        path = self._absolute(str(given.get("path", "")))
        shown = self._relative(path)
        if name == READ_FILE.name:
            line = given.get("line")
            place = Location(path, int(line) if isinstance(line, int | float) else None)
            return Description(f"Read {shown}", "read", (place,))
        before, after = self._cache.text(path), given.get("content", "")
        if name == EDIT_FILE.name:
            before, after = str(given.get("old_text", "")), given.get("new_text", "")
        diff: Update = {"type": "diff", "path": path, "oldText": before, "newText": str(after)}
        verb = "Edit" if name == EDIT_FILE.name else "Write"
        return Description(f"{verb} {shown}", "edit", (Location(path),), (diff,))

    # ---------------------------------------------------------------- calls
    async def prepare(self, owed: Owed, /) -> Description | None:
        """Return how a call is shown to the person who is asked, with the file as it is now.

        Raises:
            Refusal: it would be refused whatever the person says.
            ConnectionLost: the editor is gone.
        """
        given = self._arguments(owed)
        if owed.name in {WRITE_FILE.name, EDIT_FILE.name} and owed.name not in self._declared:
            with _refusals():
                await self._changed_text(owed.name, given)
        return self.describe(owed.name, owed.arguments)

    async def execute(self, owed: Owed, show: Show, /) -> Result:
        """Carry out a call.

        Raises:
            Refusal: it has failed.
            ConnectionLost: the editor is gone.
        """
        given = self._arguments(owed)
        with _refusals():
            if owed.name in self._declared:
                return await self._call_declared(owed, given)
            if owed.name == READ_FILE.name:
                return Result(await self._read(given))
            if owed.name == RUN_COMMAND.name:
                return await self._run_command(given, show)
            return await self._write(owed.name, given)

    def _arguments(self, owed: Owed) -> dict[str, Any]:
        """Return the arguments of a call.

        Raises:
            Refusal: they are those of another client's tool that has the name of one of ours.
        """
        given = _arguments_of(owed.arguments)
        if owed.name not in self._declared and not _fits(owed.name, given):
            raise Refusal("Not made: the arguments are those of another tool of this name.")
        return given

    def restore(self, message: Message, /) -> None:
        """Take what a message of the record tells of files, in the order of the record."""
        match message:
            case AssistantMessage():
                for call in message.tool_calls:
                    if call.client and call.name in OWN_TOOLS:
                        self._calls[call.id] = (call.name, _arguments_of(call.arguments))
            case ToolMessage(call_id=call_id, is_error=False) if call_id in self._calls:
                self._restore_result(*self._calls.pop(call_id), message.content)
            case _:
                pass

    def _restore_result(self, name: str, given: Mapping[str, Any], content: Content) -> None:
        if name == RUN_COMMAND.name:
            return
        path, text = self._absolute(str(given.get("path", ""))), single_text(content)
        if name == WRITE_FILE.name:
            self._cache.note(path, str(given.get("content", "")))
        elif name == EDIT_FILE.name:
            if (known := self._cache.text(path)) is not None:
                before, after = str(given.get("old_text")), str(given.get("new_text"))
                self._cache.note(path, replace_piece(known, before, after)[0])
        elif not {"line", "limit"} & given.keys() and text and len(text) < _READ_CHARACTERS:
            self._cache.note(path, "" if text == _EMPTY else text)

    async def _read(self, given: Mapping[str, Any]) -> str:
        path = self._absolute(given["path"])
        text = await self._read_text(path)
        if text is None:
            raise Refusal(f"There is no file {path}.")
        lines = _split_lines(text)
        # 2.0 is an integer in JSON Schema
        first, limit = int(given.get("line", 1)), int(given.get("limit", len(lines)))
        wanted = lines[first - 1 : first - 1 + limit]
        is_whole = len(wanted) == len(lines)
        shown = text if is_whole else "".join(wanted)
        if is_whole and len(text) <= _READ_CHARACTERS:
            self._cache.note(path, text)
        else:
            self._cache.note_part(path, text)
        if len(shown) > _READ_CHARACTERS:
            shown = shown[:_READ_CHARACTERS]
            end = first + len(_split_lines(shown)) - 1  # the line in which it is cut
            rest = f"read on with line={end}" if end > first else "the line is too long to be shown"
            return f"{shown}\n[cut here: {rest}; {len(lines)} lines in all]"
        if is_whole:
            return shown or _EMPTY
        if not wanted:
            raise Refusal(f"The file has {len(lines)} lines, and none from line {first} on.")
        return f"[lines {first} to {first + len(wanted) - 1} of {len(lines)}]\n{shown}"

    async def _write(self, name: str, given: Mapping[str, Any]) -> Result:
        path = self._absolute(given["path"])
        text = await self._changed_text(name, given)
        parameters: JsonValue = {"sessionId": self._session_id, "path": path, "content": text}
        await self._peer.call("fs/write_text_file", parameters, timeout=_FILE_SECONDS)
        if name == EDIT_FILE.name:
            self._cache.note_change(path, text)
            return Result(f"Edited {path}.")
        self._cache.note(path, text)
        return Result(f"Wrote {path}.")

    async def _changed_text(self, name: str, given: Mapping[str, Any]) -> str:
        """Return the text that a file would have. Raises Refusal if it may not be written."""
        path = self._absolute(given["path"])
        current = await self._read_text(path)
        if current is None and name == EDIT_FILE.name:
            raise Refusal(f"There is no file {path}.")
        replaces = name == WRITE_FILE.name
        objection = self._cache.find_objection(path, current, replaces=replaces)
        if objection is not None:
            raise Refusal(objection)
        if replaces or current is None:
            return str(given["content"])
        changed, count = replace_piece(current, given["old_text"], given["new_text"])
        if count != 1:
            found = "does not stand in the file" if count == 0 else f"stands there {count} times"
            raise Refusal(f"Not written: old_text {found}; it has to be there exactly once.")
        return changed

    async def _read_text(self, path: str) -> str | None:
        """Return the text of a file in the editor; None if there is no such file."""
        parameters: JsonValue = {"sessionId": self._session_id, "path": path}
        try:
            answer = await self._peer.call("fs/read_text_file", parameters, timeout=_FILE_SECONDS)
        except ConnectionLost:
            raise
        except RpcError as error:
            is_told = error.code not in _OF_PROTOCOL and _MISSING.search(error.message)
            if error.code == RESOURCE_NOT_FOUND or is_told:
                return None
            raise
        content = answer.get("content") if isinstance(answer, dict) else None
        if not isinstance(content, str):
            raise Refusal("The editor's answer has no text.")
        return replace_surrogates(content)

    async def _run_command(self, given: Mapping[str, Any], show: Show) -> Result:
        terminal = await self._create_terminal(given)
        seconds = int(given.get("seconds", _COMMAND_SECONDS))
        ended: JsonValue = None
        try:
            show([{"type": "terminal", "terminalId": terminal["terminalId"]}])
            with anyio.move_on_after(seconds) as waiting:
                ended = await self._peer.call("terminal/wait_for_exit", terminal)
            if waiting.cancelled_caught:
                await self._peer.call("terminal/kill", terminal, timeout=_FILE_SECONDS)
            output = await self._peer.call("terminal/output", terminal, timeout=_FILE_SECONDS)
        finally:
            # it ends a command that still runs, too
            with anyio.move_on_after(2, shield=True):
                await self._release(terminal)
        stopped_after = seconds if waiting.cancelled_caught else None
        return Result(*command_result(output, ended, stopped_after))

    async def _create_terminal(self, given: Mapping[str, Any]) -> dict[str, JsonValue]:
        """Start a command; return the parameters that name its terminal."""
        command, arguments = given["command"], given.get("args")
        if arguments is None:
            is_posix = self._paths is posixpath
            command, arguments = ("sh", ["-c", command]) if is_posix else ("cmd", ["/c", command])
        wanted: JsonValue = {
            "sessionId": self._session_id,
            "command": command,
            "args": arguments,
            "cwd": self._absolute(given.get("cwd", "")),
            "outputByteLimit": OUTPUT_BYTES,
        }
        created = await self._peer.call(
            "terminal/create", wanted, timeout=_CREATE_SECONDS, late=self._release_late
        )
        terminal = self._terminal_of(created)
        if terminal is None:
            raise Refusal("The editor's answer names no terminal.")
        return terminal

    def _release_late(self, created: JsonValue) -> None:
        """Release a terminal that comes when its call is over."""
        if (terminal := self._terminal_of(created)) is not None:
            self._peer.request("terminal/release", terminal)

    def _terminal_of(self, created: JsonValue) -> dict[str, JsonValue] | None:
        """Return the parameters that name a terminal; None if the editor has named none."""
        terminal_id = created.get("terminalId") if isinstance(created, dict) else None
        if not isinstance(terminal_id, str):
            return None
        return {"sessionId": self._session_id, "terminalId": terminal_id}

    async def _release(self, terminal: JsonValue) -> None:
        with suppress(RpcError):  # it is gone, or the editor is
            await self._peer.call("terminal/release", terminal)

    async def _call_declared(self, owed: Owed, given: Mapping[str, Any]) -> Result:
        answer = await self._peer.call(
            "_passback/tool_call",
            {
                "sessionId": self._session_id,
                "toolCallId": owed.id,
                "name": owed.name,
                "arguments": dict(given),
            },
        )
        if not isinstance(answer, dict) or "content" not in answer:
            raise Refusal("The editor's answer has no content.")
        try:
            content = read_result(answer["content"], self._result_bytes)
        except PassbackError as error:
            raise Refusal(error.message) from None
        return Result(content, answer.get("isError") is True)

    def _absolute(self, path: str) -> str:
        return self._paths.normpath(self._paths.join(self._cwd, path)) if path else self._cwd

    def _relative(self, path: str) -> str:
        return path.removeprefix(self._paths.join(self._cwd, ""))


def paths_of(cwd: str, /) -> ModuleType:
    """Return the rules of paths (`posixpath`, `ntpath`) of the editor's system."""
    return posixpath if PurePosixPath(cwd).is_absolute() else ntpath


def _arguments_of(text: str) -> dict[str, Any]:
    """Return the arguments of a call, which fit its tool's schema unless it is another tool's."""
    given = read_json(text)
    return {**given} if isinstance(given, dict) else {}


def _split_lines(text: str) -> list[str]:
    """Return lines as editors count them: unlike `splitlines`, not at form feeds and such."""
    return list(io.StringIO(text, newline=""))


def _first_question(given: Mapping[str, Any]) -> str:
    try:
        return str(given["questions"][0]["question"])
    except (LookupError, TypeError):  # not valid: it is not asked
        return ASK_USER.name


_TYPES: Final = {"string": str, "integer": int | float, "array": list}


def _fits(name: str, given: Mapping[str, Any]) -> bool:
    """Return whether arguments have the names and types that a tool of ours declares."""
    schema: Any = next(each.parameters for each in (*_FILE_TOOLS, RUN_COMMAND) if each.name == name)
    known = schema["properties"]
    return given.keys() >= set(schema["required"]) and all(
        isinstance(each, _TYPES[known[key]["type"]]) for key, each in given.items() if key in known
    )
