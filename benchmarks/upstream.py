"""A mock model server: the OpenAI chat-completions stream, at next to no cost.

    python -m benchmarks.upstream --port 9100

The words `bench:DELTAS:GAP_MS:WORDS` anywhere in a request choose the answer, the last ones count.
Each delta has this number of words and is an HTTP chunk of its own, as real providers write; with a
gap of 0 the whole answer is one write.
"""

import argparse
import asyncio
import json
import re
from functools import lru_cache
from typing import cast

import httptools
import uvloop
from typing_extensions import override

from benchmarks.workloads import Answer

_PROMPT = re.compile(rb"bench:(\d+):(\d+):(\d+)")
_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
)
_MODELS = b'{"object":"list","data":[{"id":"mock","object":"model","created":1,"owned_by":"mock"}]}'
_MODELS_REPLY = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
    % (len(_MODELS), _MODELS)
)
# The golden ratio's multiples modulo 1: consecutive streams tick at times as far apart as can be,
# whenever their requests came. So a server that is late does not get streams that tick together,
# which cost less.
_PHASE_STEP = 0.6180339887


def encode_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def encode_event(choices: list[object], usage: dict[str, int] | None = None) -> bytes:
    chunk = {
        "id": "chatcmpl-CY3rT0mq8Vd51nFw7LzKb2XhUeGpA",
        "object": "chat.completion.chunk",
        "created": 1763680000,
        "model": "mock",
        "system_fingerprint": "fp_mock000001",
        "choices": choices,
        "usage": usage,
    }
    text = json.dumps(chunk, separators=(",", ":"), ensure_ascii=False)
    return encode_chunk(b"data: " + text.encode() + b"\n\n")


def encode_delta(delta: dict[str, str], finish: str | None = None) -> bytes:
    return encode_event([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}])


_USAGE = {"prompt_tokens": 12, "completion_tokens": 200, "total_tokens": 212}
_ROLE = encode_delta({"role": "assistant", "content": ""})
_END = (
    encode_delta({}, "stop")
    + encode_event([], _USAGE)
    + encode_chunk(b"data: [DONE]\n\n")
    + b"0\r\n\r\n"
)


@lru_cache(maxsize=32)
def encode_answer(answer: Answer) -> tuple[bytes, ...]:
    """Return the network writes of an answer, in order."""
    deltas = [encode_delta({"content": answer.delta(index)}) for index in range(answer.deltas)]
    writes = (_HEAD + _ROLE + deltas[0], *deltas[1:], _END)
    return writes if answer.gap_ms else (b"".join(writes),)


class ModelServer(asyncio.Protocol):
    """One connection: a request, its answer on a timer, the next request."""

    streams = 0

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._body = bytearray()
        self._timer: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    @override
    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        body, self._body = bytes(self._body), bytearray()
        if self._parser.get_method() == b"GET":
            self._transport.write(_MODELS_REPLY)
            return
        found = _PROMPT.findall(body)
        deltas, gap_ms, words = found[-1] if found else (b"3", b"0", b"1")
        answer = Answer(max(1, int(deltas)), int(gap_ms), max(1, int(words)))
        ModelServer.streams += 1
        writes = encode_answer(answer)
        self._transport.write(writes[0])
        if len(writes) > 1:
            gap = answer.gap_ms / 1000
            phase = ModelServer.streams * _PHASE_STEP % 1
            soonest = self._loop.time() + gap * 0.5
            self._schedule(writes, 1, soonest + (phase * gap - soonest) % gap, gap)

    def _schedule(self, writes: tuple[bytes, ...], at: int, due: float, gap: float) -> None:
        self._timer = self._loop.call_at(due, self._write_next, writes, at, due, gap)

    def _write_next(self, writes: tuple[bytes, ...], at: int, due: float, gap: float) -> None:
        self._transport.write(writes[at])
        if at + 1 < len(writes):
            self._schedule(writes, at + 1, due + gap, gap)
        else:
            self._timer = None


async def serve(port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(ModelServer, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="mock model server")
    parser.add_argument("--port", type=int, required=True)
    uvloop.run(serve(parser.parse_args().port))
