"""The client of the published Python SDK, `agent-client-protocol`, driving `passback acp`."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import acp
from acp import schema
from acp.client.connection import ClientSideConnection
from acp.connection import StreamDirection, StreamEvent
from tests.support.acp_editor import SECONDS, acp_command, acp_environment
from tests.support.acp_order import Frame, order_faults
from tests.support.acp_schema import Json, faults_of
from tests.support.acp_workspace import Workspace

if TYPE_CHECKING:
    from pydantic import BaseModel


class SdkClient:
    """An editor's side as users of the SDK write it. Implements `acp.Client`.

    Attributes:
        updates: all updates, each with its session, as the SDK's models.
        choice: the kind of the option that it takes where permission is asked.
        workspace: what answers all other requests.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.updates: list[tuple[str, BaseModel]] = []
        self.choice = "allow_once"
        self.workspace = workspace
        self._handlers = workspace.handlers()

    async def _ask(self, method: str, **params: Any) -> Json:
        known = {name: value for name, value in params.items() if value is not None}
        return await self._handlers[method](known)

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append((session_id, update))

    async def request_permission(
        self,
        session_id: str,
        tool_call: schema.ToolCallUpdate,
        options: list[schema.PermissionOption],
        **_: Any,
    ) -> schema.RequestPermissionResponse:
        [chosen] = [each for each in options if each.kind == self.choice]
        outcome = schema.AllowedOutcome(option_id=chosen.option_id, outcome="selected")
        return schema.RequestPermissionResponse(outcome=outcome)

    # ------------------------------------------------------------ files
    async def read_text_file(
        self,
        session_id: str,
        path: str,
        line: int | None = None,
        limit: int | None = None,
        **_: Any,
    ) -> schema.ReadTextFileResponse:
        read = await self._ask("fs/read_text_file", path=path, line=line, limit=limit)
        return schema.ReadTextFileResponse.model_validate(read)

    async def write_text_file(
        self, session_id: str, path: str, content: str, **_: Any
    ) -> schema.WriteTextFileResponse:
        await self._ask("fs/write_text_file", path=path, content=content)
        return schema.WriteTextFileResponse()

    # ------------------------------------------------------------ terminals
    async def create_terminal(
        self, session_id: str, command: str, *_: Any, **params: Any
    ) -> schema.CreateTerminalResponse:
        asked = {name: params.get(name) for name in ("args", "cwd")}
        made = await self._ask("terminal/create", command=command, **asked)
        return schema.CreateTerminalResponse.model_validate(made)

    async def terminal_output(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> schema.TerminalOutputResponse:
        output = await self._ask("terminal/output", terminalId=terminal_id)
        return schema.TerminalOutputResponse.model_validate(output)

    async def wait_for_terminal_exit(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> schema.WaitForTerminalExitResponse:
        ended = await self._ask("terminal/wait_for_exit", terminalId=terminal_id)
        return schema.WaitForTerminalExitResponse.model_validate(ended)

    async def kill_terminal(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> schema.KillTerminalResponse:
        await self._ask("terminal/kill", terminalId=terminal_id)
        return schema.KillTerminalResponse()

    async def release_terminal(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> schema.ReleaseTerminalResponse:
        await self._ask("terminal/release", terminalId=terminal_id)
        return schema.ReleaseTerminalResponse()

    # ------------------------------------------------------------ forms and extensions
    async def create_elicitation(
        self, message: str, mode: schema.ElicitationMode, **_: Any
    ) -> schema.CreateElicitationResponse:
        assert isinstance(mode, schema.ElicitationFormSessionMode)
        names = list(mode.requested_schema.properties or {})
        answers = {name: self.workspace.form[name] for name in names}
        return schema.AcceptElicitationResponse(action="accept", content=answers)

    async def complete_elicitation(self, elicitation_id: str, **_: Any) -> None:
        raise AssertionError("nothing was asked by an address")

    async def ext_method(self, method: str, params: Json) -> Json:
        return await self._ask(f"_{method}", **params)

    async def ext_notification(self, method: str, params: Json) -> None:
        raise AssertionError(f"there is no notification {method}")

    def on_connect(self, conn: acp.Agent) -> None:
        """Take note of the connection, which the test has anyway."""


class Sdk:
    """A connection of the SDK.

    Attributes:
        agent: its methods call the agent.
        client: what answers the agent.
        frames: what went through the connection, each of the agent's held to the schema.
    """

    def __init__(self) -> None:
        self.client = SdkClient(Workspace())
        self.frames: list[Frame] = []
        self._faults: list[str] = []
        self._methods: dict[Any, str] = {}
        self._agent: ClientSideConnection | None = None

    @property
    def agent(self) -> ClientSideConnection:
        assert self._agent is not None
        return self._agent

    def connect(self, agent: ClientSideConnection) -> None:
        self._agent = agent

    def observe(self, event: StreamEvent) -> None:
        """Take a frame, as an observer of the SDK."""
        message, is_sent = event.message, event.direction is StreamDirection.OUTGOING
        self.frames.append(Frame(is_sent, message))
        if is_sent and "method" in message and "id" in message:
            self._methods[message["id"]] = message["method"]
        elif not is_sent:
            asked = None if "method" in message else self._methods.get(message.get("id"))
            self._faults += faults_of(message, asked)

    def check(self) -> None:
        """Raises AssertionError if a frame was not valid or out of order."""
        faults = [*self._faults, *order_faults(self.frames)]
        assert faults == [], "\n".join(faults)


@asynccontextmanager
async def running_sdk(
    *arguments: str, cwd: Path, environment: Mapping[str, str]
) -> AsyncGenerator[Sdk]:
    """Start an agent and connect the SDK to it; leaving checks all frames."""
    sdk = Sdk()
    command, *rest = acp_command(*arguments)
    spawned = acp.spawn_agent_process(
        sdk.client,
        command,
        *rest,
        env=acp_environment(environment),
        cwd=cwd,
        transport_kwargs={"stderr": None, "shutdown_timeout": SECONDS},
        use_unstable_protocol=True,
        observers=[sdk.observe],
    )
    async with spawned as (agent, process):
        sdk.connect(agent)
        yield sdk
    assert process.returncode == 0
    sdk.check()
