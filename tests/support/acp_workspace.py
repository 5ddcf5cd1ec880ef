"""What an editor for tests lends to its agent: files in memory, terminals, forms, tools."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import anyio
import anyio.lowlevel
from tests.support.acp_editor import AcpError, Handler
from tests.support.acp_schema import Json

ClientTool: TypeAlias = Callable[[Json], Awaitable[Json]]


@dataclass(slots=True)
class Terminal:
    """A command that runs until it is finished or killed.

    Attributes:
        asked: the parameters of its `terminal/create`.
        output: what it has printed.
        exit: how it ended, as `terminal/wait_for_exit` says it.
    """

    asked: Json
    output: str = ""
    exit: Json | None = None
    ended: anyio.Event = field(default_factory=anyio.Event)

    def end(self, **how: object) -> None:
        if self.exit is None:
            self.exit = how
            self.ended.set()


class Workspace:
    """The handlers of an editor that offers everything.

    Attributes:
        files: texts by path.
        terminals: those that are not released, by id.
        commands: the parameters of every command that was run.
        output: what commands print; they end at once with exit code 0 where it is not None.
        form: the answer to `elicitation/create`.
        tools: the client's tools, by name.
        log: methods that were asked, with their parameters, in order.
    """

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.terminals: dict[str, Terminal] = {}
        self.commands: list[Json] = []
        self.output: str | None = "done\n"
        self.form: Json = {"action": "decline"}
        self.tools: dict[str, ClientTool] = {}
        self.log: list[tuple[str, Json]] = []
        self.started = anyio.Event()

    def handlers(self) -> dict[str, Handler]:
        """Return handlers for `Editor.handlers`."""
        known: dict[str, Handler] = {
            "fs/read_text_file": self._read,
            "fs/write_text_file": self._write,
            "terminal/create": self._create,
            "terminal/output": self._output,
            "terminal/wait_for_exit": self._wait,
            "terminal/kill": self._kill,
            "terminal/release": self._release,
            "elicitation/create": self._elicit,
            "_passback/tool_call": self._call,
        }
        return {method: self._logged(method, handler) for method, handler in known.items()}

    def _logged(self, method: str, handler: Handler) -> Handler:
        async def answer(params: Json) -> Json:
            await anyio.lowlevel.checkpoint()
            self.log.append((method, params))
            return await handler(params)

        return answer

    # ------------------------------------------------------------ files
    async def _read(self, params: Json) -> Json:
        try:
            lines = self.files[params["path"]].splitlines(keepends=True)
        except KeyError:
            raise AcpError(-32002, f"There is no file {params['path']}") from None
        first = (params.get("line") or 1) - 1
        limit = params.get("limit")
        shown = lines[first:] if limit is None else lines[first : first + limit]
        return {"content": "".join(shown)}

    async def _write(self, params: Json) -> Json:
        self.files[params["path"]] = params["content"]
        return {}

    # ------------------------------------------------------------ terminals
    async def _create(self, params: Json) -> Json:
        self.commands.append(params)
        name = f"terminal-{len(self.commands)}"
        terminal = self.terminals[name] = Terminal(params)
        if self.output is not None:
            terminal.output = self.output
            terminal.end(exitCode=0)
        self.started.set()
        return {"terminalId": name}

    def _terminal(self, params: Json) -> Terminal:
        try:
            return self.terminals[params["terminalId"]]
        except KeyError:
            raise AcpError(-32002, f"There is no terminal {params['terminalId']}") from None

    async def _output(self, params: Json) -> Json:
        terminal = self._terminal(params)
        ended = {} if terminal.exit is None else {"exitStatus": terminal.exit}
        return {"output": terminal.output, "truncated": False, **ended}

    async def _wait(self, params: Json) -> Json:
        terminal = self._terminal(params)
        await terminal.ended.wait()
        assert terminal.exit is not None
        return terminal.exit

    async def _kill(self, params: Json) -> Json:
        self._terminal(params).end(signal="SIGKILL")
        return {}

    async def _release(self, params: Json) -> Json:
        self._terminal(params).end(signal="SIGKILL")
        del self.terminals[params["terminalId"]]
        return {}

    # ------------------------------------------------------------ the rest
    async def _elicit(self, params: Json) -> Json:
        return self.form

    async def _call(self, params: Json) -> Json:
        return await self.tools[params["name"]](params["arguments"])
