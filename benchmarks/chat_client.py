"""A client of the chat socket as a plain WebSocket, in one session."""

import asyncio
import json
import time
from typing import Self
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect

from benchmarks.client import CHAT, Reply


class ChatConnection:
    """A WebSocket at `/ws`, used as `client.Connection` is.

    Attributes:
        session_id: what it is subscribed to.
        text_came: is set when the chat's first text is there.
    """

    def __init__(self, socket: ClientConnection, session_id: str) -> None:
        self._socket = socket
        self.session_id = session_id
        self.text_came = asyncio.Event()

    @classmethod
    async def open(cls, url: str, session_id: str | None = None) -> Self:
        """Connect, and subscribe to a session, or to a new one."""
        netloc = urlsplit(url).netloc
        session_id = session_id or await create_session(netloc)
        socket = await connect(f"ws://{netloc}{CHAT.path}", compression=None)
        connection = cls(socket, session_id)
        await connection._emit("session:subscribe", frame_id=1)
        ack = json.loads(await socket.recv())
        if ack["data"] != {"status": "ok"}:
            raise ConnectionError(f"not subscribed: {ack}")
        return connection

    async def ask(self, prompt: str, _conversation: str) -> Reply:
        """Send the prompt.

        The reply's body is the chat's text, and `status` 200 if the chat was completed.
        """
        self.text_came.clear()
        asked = time.perf_counter()
        await self.send(prompt)
        first, pieces = 0.0, list[str]()
        async for message in self._socket:
            frame = json.loads(message)
            name, data = frame["event"], frame["data"]
            if name == "turn:patch" and data["patch_type"] == "add_content":
                pieces.append(data["data"]["text_delta"])
                first = first or time.perf_counter() - asked
                self.text_came.set()
            elif name in {"chat:end", "system:error"}:
                status = 200 if data.get("status") == "completed" else 500
                return Reply(status, "".join(pieces).encode(), first * 1000)
        raise ConnectionResetError("closed in the middle")

    async def send(self, prompt: str) -> None:
        await self._emit("chat:send", message=prompt)

    async def next_number(self) -> int:
        """Return the number of the next event."""
        return int(json.loads(await self._socket.recv())["data"]["stream_sequence"])

    @property
    def is_closed(self) -> bool:
        return self._socket.close_code is not None

    async def _emit(self, name: str, frame_id: int | None = None, **data: str) -> None:
        data["session_id"] = self.session_id
        await self._socket.send(json.dumps({"event": name, "data": data, "id": frame_id}))

    def close(self) -> None:
        self._socket.transport.close()


async def create_session(netloc: str) -> str:
    host, _, port = netloc.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = json.dumps({"intent": "bench"}).encode()
    head = (
        f"POST /api/sessions HTTP/1.1\r\nhost: {netloc}\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    _, _, answer = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return str(json.loads(answer)["session_id"])
