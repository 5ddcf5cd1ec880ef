"""A client of the Agent Client Protocol over a WebSocket, in one session."""

import asyncio
import json
import time
from typing import Any, Self
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect

from benchmarks.client import ACP, Reply


class AcpConnection:
    """A WebSocket at `/acp`, used as `client.Connection` is.

    Attributes:
        text_came: is set when the prompt's first text is there.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._session_id = ""
        self._last_id = 0
        self.text_came = asyncio.Event()

    @classmethod
    async def open(cls, url: str) -> Self:
        """Connect, and create a session."""
        socket = await connect(f"ws://{urlsplit(url).netloc}{ACP.path}", compression=None)
        connection = cls(socket)
        await connection._call("initialize", protocolVersion=1)
        created = await connection._call("session/new", cwd="/", mcpServers=[])
        connection._session_id = created["sessionId"]
        return connection

    async def ask(self, prompt: str, _conversation: str) -> Reply:
        """Send the prompt.

        The reply's body is the text of the answer, and `status` 200 if it has come to its end.
        """
        self.text_came.clear()
        asked = time.perf_counter()
        block = {"type": "text", "text": prompt}
        await self._send("session/prompt", sessionId=self._session_id, prompt=[block])
        first, pieces = 0.0, list[str]()
        async for message in self._socket:
            frame = json.loads(message)
            if frame.get("id") == self._last_id:
                status = 200 if frame.get("result") == {"stopReason": "end_turn"} else 500
                return Reply(status, "".join(pieces).encode(), first * 1000)
            update = frame["params"]["update"]
            if update["sessionUpdate"] == "agent_message_chunk":
                pieces.append(update["content"]["text"])
                first = first or time.perf_counter() - asked
                self.text_came.set()
        raise ConnectionResetError("closed in the middle")

    async def _call(self, method: str, **params: object) -> Any:
        await self._send(method, **params)
        while (frame := json.loads(await self._socket.recv())).get("id") != self._last_id:
            pass
        return frame["result"]

    async def _send(self, method: str, **params: object) -> None:
        self._last_id += 1
        request = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        await self._socket.send(json.dumps(request))

    def close(self) -> None:
        self._socket.transport.close()
