"""The AI SDK's client side: its published `Chat` in Node.js, and chunks without it."""

import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from tests.support.programs import missing, program
from tests.support.wire import FrameReader

Json: TypeAlias = dict[str, Any]

API = "/api/chat"
FOLDER = Path(__file__).resolve().parents[1] / "js"
_MOST_BYTES = 16 * 1024 * 1024  # of a line
_SECONDS = 30  # of one command: a run may be taken over meanwhile


def user(words: str, message_id: str = "u1", **more: Any) -> Json:
    return {"id": message_id, "role": "user", "parts": [{"type": "text", "text": words}], **more}


def agent(*parts: Json, message_id: str = "run_1", **more: Any) -> Json:
    return {"id": message_id, "role": "assistant", "parts": list(parts), **more}


def tool_part(state: str, call_id: str = "call_1", name: str = "paint", **more: Any) -> Json:
    return {"type": f"tool-{name}", "toolCallId": call_id, "state": state, "input": {}, **more}


def file_part(url: str, media_type: str = "image/png") -> Json:
    return {"type": "file", "url": url, "mediaType": media_type}


def chunks_of(body: bytes) -> list[Json]:
    """Return the chunks of a stream, whose every byte has to be in place; its end is `[DONE]`."""
    reader = FrameReader()
    frames = [frame.data for frame in reader.feed(body)]
    reader.close()
    assert frames[-1] == "[DONE]"
    return [json.loads(frame) for frame in frames[:-1]]


def said(chunks: Iterable[Json], kind: str = "text") -> str:
    return "".join(each["delta"] for each in chunks if each["type"] == f"{kind}-delta")


class Chats:
    """Chats of the published client in one process of Node.js."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin = process.stdin
        self._stdout = BufferedByteReceiveStream(process.stdout)

    async def __call__(self, op: str, chat: str = "chat", **fields: Any) -> Json:
        """Let a chat do something; return what it has then. An error of the call is raised."""
        command = json.dumps({"op": op, "chat": chat, **fields})
        with anyio.fail_after(_SECONDS):
            await self._stdin.send(f"{command}\n".encode())
            line = await self._stdout.receive_until(b"\n", _MOST_BYTES)
        state: Json = json.loads(line)
        assert state["failure"] is None, state["failure"]
        return state

    async def send(self, words: str, chat: str = "chat", **more: Any) -> Json:
        return await self("send", chat, message={"text": words, **more})

    async def judge(
        self, body: str, messages: Sequence[Json], *, resumes: bool = False, auto: bool = True
    ) -> Json:
        """Let a fresh chat read one stream; return what it has then.

        Args:
            body: the stream. A second request of the chat is an error.
            messages: of the chat; the last one is sent, unless the chat `resumes`.
            resumes: the stream is read as one of an answer that goes on.
            auto: the chat posts answers by itself once it has all.
        """
        goes_on = resumes or messages[-1]["role"] == "assistant"
        kept = list(messages) if goes_on else list(messages[:-1])
        await self("open", "judged", id="c", messages=kept, replies=[body], auto=auto)
        if resumes:
            return await self("resume", "judged")
        more: Json = {} if goes_on else {"message": messages[-1]}
        return await self("send", "judged", **more)

    async def validate(self, messages: Sequence[Json]) -> None:
        """Let the package validate messages from elsewhere, and make a model's request of them."""
        await self("open", "judged", id="c")
        await self("validate", "judged", messages=messages)


@asynccontextmanager
async def published_chats() -> AsyncGenerator[Chats]:
    """Run the published client."""
    node = program("node", variable="TEST_NODE")
    if not (FOLDER / "node_modules" / "@ai-sdk").exists():
        missing("@ai-sdk/react in tests/js/node_modules")
    async with await anyio.open_process([node, str(FOLDER / "ai-sdk.mjs")], stderr=None) as process:
        try:
            yield Chats(process)
        finally:
            process.kill()


def tools_of(state: Json) -> list[Json]:
    """Return the parts of calls in the last message."""
    parts: list[Json] = state["messages"][-1]["parts"]
    return [each for each in parts if each["type"].startswith(("tool-", "dynamic-tool"))]


def text_of(state: Json) -> str:
    """Return the text of the last message."""
    parts: list[Json] = state["messages"][-1]["parts"]
    return "".join(each["text"] for each in parts if each["type"] == "text")
