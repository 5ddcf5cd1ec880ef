"""Scenarios of streams: one that is cut after each event and resumed, and one through nginx."""

import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx
from anyio.lowlevel import checkpoint
from tests.faults import checkers
from tests.faults.deployment import Deployment
from tests.faults.evidence import Post
from tests.faults.results import Progress, Result
from tests.faults.retrying_client import ASK_TOOL
from tests.support.programs import program
from tests.support.redis_server import free_port
from tests.support.waiting import pause
from tests.support.wire import (
    DONE,
    PATH,
    Answer,
    Client,
    Frame,
    FrameReader,
    Stream,
    client_of,
    merged,
    text_of,
)

# ---------------------------------------------------------------- disconnects
SHORT_ANSWER = 12  # words
EVENTS = SHORT_ANSWER + 6
"""Events of the longest stream: its words and their frame, a call, the ends."""
SECONDS = 30


async def play_disconnects(deployment: Deployment, points: int, progress: Progress) -> Result:
    """Cut one stream in each point; the places are those after each event, in turn."""
    result = Result()
    urls = deployment.workers.urls()
    async with client_of(urls[0]) as one, client_of(urls[-1]) as other:
        for point, place in zip(range(points), cycle(range(1, EVENTS + 1)), strict=False):
            conversation, token = deployment.new_token("conversation-"), deployment.new_token()
            tool = "ask" if point % 2 else ""
            post = Post(conversation, token, words=SHORT_ANSWER, delay=5, tool=tool)
            with anyio.fail_after(SECONDS):
                second = one if point % 3 == 0 else other
                result.violations += await _cut_and_resume(post, place, one, second)
            result.points, result.disconnects = point + 1, point + 1
            progress(result)
    return result


async def _cut_and_resume(post: Post, place: int, first: Client, second: Client) -> list[str]:
    """Cut a run's stream after event number `place`, and resume it; another reader is not cut."""
    uncut: list[Answer] = []
    same: dict[str, Any] = {"tools": [ASK_TOOL], "headers": {"idempotency-key": post.token}}

    async def read_uncut() -> None:
        uncut.append(await second.post(post.conversation, post.message, **same))

    async with anyio.create_task_group() as tasks:
        async with first.stream(post.conversation, [post.message], **same) as stream:
            tasks.start_soon(read_uncut)
            head = await _read_head(stream, place)
        rest = await second.replay(post.conversation, after=head[-1].id)
        cursor = {**same, "headers": {**same["headers"], "last-event-id": head[-1].id}}
        repeated = await second.post(post.conversation, post.message, **cursor)
    complete = await first.post(post.conversation, post.message, **same)
    streams = {
        "resumed": [*head, *rest.frames],
        "resumed by a repeated post": [*head, *repeated.frames],
        "of another reader": uncut[0].frames,
    }
    return [
        f"cut after event {place}: the stream {name} is not the complete one"
        for name, frames in streams.items()
        if merged(frames) != merged(complete.frames)
    ]


async def _read_head(stream: Stream, count: int) -> list[Frame]:
    """Read so many events, or all of them, but not `[DONE]`, after which nothing follows."""
    head = [await stream.next()]
    while len(head) < count:
        if (frame := await stream.next()).data == DONE:
            break
        head.append(frame)
    return head


# ---------------------------------------------------------------- nginx
WORDS = 20
"""Words of the answer; the model says each only when the client has the one before."""
SILENCE = 65
"""Seconds: longer than nginx waits for a server by default."""
START_SECONDS = 10

# one process in the foreground that writes only to its folder; the rest is nginx's default
CONFIGURATION = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    gzip on;
    gzip_types *;
    gzip_proxied any;
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass {target};
        }}
    }}
}}
"""


async def play_nginx(deployment: Deployment, points: int, progress: Progress) -> Result:
    """Read one answer through nginx in each point; from the second on, with a silence in it."""
    result = Result()
    async with running_nginx(deployment.workers.urls()[0], deployment.folder) as url:
        for point in range(points):
            post = Post(deployment.new_token("conversation-"), deployment.new_token(), words=WORDS)
            silence = SILENCE if point else 0
            result.violations += await _read_word_by_word(deployment, url, post, silence)
            result.points, result.posts, result.acknowledged = (point + 1,) * 3
            progress(result)
    return result


async def _read_word_by_word(
    deployment: Deployment, url: str, post: Post, silence: float
) -> list[str]:
    """Read an answer that stands still as soon as anything on its way keeps an event back."""
    gates = deployment.model.word_gates[post.token] = [anyio.Event() for _ in range(WORDS)]
    frames, reader, encoding = list[Frame](), FrameReader(), ""
    body = {"conversationId": post.conversation, "messages": [post.message], "include": ["run"]}
    with anyio.move_on_after(silence + SECONDS) as limit:
        async with (
            httpx.AsyncClient(trust_env=False, timeout=None) as http,
            http.stream(
                "POST", url + PATH, json=body, headers={"accept-encoding": "gzip"}
            ) as response,
        ):
            encoding = response.headers.get("content-encoding", "")
            async for chunk in response.aiter_bytes():
                frames += reader.feed(chunk)
                words = text_of(frames).split(" ")[2:]
                if words == [""] and not gates[0].is_set():
                    await pause(silence)
                for gate in gates[: len(words)]:
                    gate.set()
    if limit.cancelled_caught:
        return [f"an event was kept back after {len(frames)} frames"]
    violations = checkers.check_single_end(post.token, frames)
    if problem := checkers.find_answer_defect(text_of(frames)):
        violations.append(f"the answer is wrong: {problem}")
    if encoding != "gzip":
        violations.append(f"nginx did not compress: {encoding!r}; this proves nothing")
    return violations


@asynccontextmanager
async def running_nginx(target: str, folder: Path) -> AsyncGenerator[str]:
    """Start nginx and give the URL under which it passes on to the server at `target`."""
    port = free_port()
    configuration = folder / "nginx.conf"
    configuration.write_text(CONFIGURATION.format(folder=folder, port=port, target=target))
    path = program("nginx", variable="TEST_NGINX")
    command = [path, "-e", str(folder / "error.log"), "-p", str(folder), "-c", str(configuration)]
    process = await anyio.open_process(command, stdin=subprocess.DEVNULL, stdout=None, stderr=None)
    async with process:
        try:
            await _wait_until_listening(port)
            yield f"http://{urlsplit(target).hostname}:{port}"
        finally:
            process.kill()


async def _wait_until_listening(port: int) -> None:
    with anyio.fail_after(START_SECONDS):
        while True:
            try:
                async with await anyio.connect_tcp("127.0.0.1", port):
                    return
            except OSError:
                await checkpoint()
