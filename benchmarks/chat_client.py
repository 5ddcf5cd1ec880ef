"""A client of the chat socket as a plain WebSocket: one session and one chat after the other."""

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
        text_came: is set when the chat's first text is there.
    """

    def __init__(self, socket: ClientConnection, netloc: str) -> None:
        self._socket = socket
        self._netloc = netloc
        self.text_came = asyncio.Event()

    @classmethod
    async def open(cls, url: str) -> Self:
        netloc = urlsplit(url).netloc
        return cls(await connect(f"ws://{netloc}{CHAT.path}", compression=None), netloc)

    async def ask(self, prompt: str, _conversation: str) -> Reply:
        """Create a session, and send the prompt as its first message.

        The reply's body is the chat's text, and `status` 200 if the chat was completed.
        """
        self.text_came.clear()
        session_id = await self.create_session()
        await self._emit("session:subscribe", session_id=session_id)
        asked = time.perf_counter()
        await self.send(session_id, prompt)
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

    async def subscribe(self, session_id: str) -> None:
        """Follow a session. Returns when its events come."""
        await self._emit("session:subscribe", frame_id=1, session_id=session_id)
        ack = json.loads(await self._socket.recv())
        if ack["data"] != {"status": "ok"}:
            raise ConnectionError(f"not subscribed: {ack}")

    async def send(self, session_id: str, prompt: str) -> None:
        await self._emit("chat:send", session_id=session_id, message=prompt)

    async def next_number(self) -> int:
        """Return the number of the next event."""
        return int(json.loads(await self._socket.recv())["data"]["stream_sequence"])

    @property
    def is_closed(self) -> bool:
        return self._socket.close_code is not None

    async def _emit(self, name: str, frame_id: int | None = None, **data: str) -> None:
        await self._socket.send(json.dumps({"event": name, "data": data, "id": frame_id}))

    async def create_session(self) -> str:
        host, _, port = self._netloc.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        body = json.dumps({"intent": "bench"}).encode()
        head = (
            f"POST /api/sessions HTTP/1.1\r\nhost: {self._netloc}\r\nconnection: close\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        _, _, answer = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        return str(json.loads(answer)["session_id"])

    def close(self) -> None:
        self._socket.transport.close()
