"""The published clients read every faulty replay to the same end as the clean one."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
import uvicorn
from starlette.types import ASGIApp
from tests.support.programs import program
from tests.support.proxies import frame_cutter
from tests.support.server import Server, replaying
from tests.support.socket_site import QuietServer, listening_socket

from passback.http.protocol import BoundedHttpProtocol
from passback.replay import PlayFaults, replay_site
from passback.replay.recording import load_recording
from passback_client import Answer, Busy, Client, Retry

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.node,
    # dozens of conversations each, which take seconds on an idle machine
    pytest.mark.timeout(300),
]

SCRIPT = Path(__file__).resolve().parents[1] / "js" / "replay-drive.mjs"
SECONDS = 200
MESSAGES = [
    "count to 12",
    "use get-time-zone, get-mood, then set-color to blue",
    "count to 3",
]
INCLUDE = ["usage", "message-ids", "tools"]
QUICK = Retry(attempts=20, first=0.001, longest=0.05)


async def drive(scenario: str, **order: object) -> Any:
    """Let the JavaScript client do something; return what it saw."""
    asked = json.dumps({"messages": MESSAGES, "include": INCLUDE, **order})
    with anyio.fail_after(SECONDS):
        command = [program("node", variable="TEST_NODE"), str(SCRIPT), scenario, asked]
        done = await anyio.run_process(command)
    return json.loads(done.stdout.decode().splitlines()[-1])


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recording, by a network that cut each connection after some events.

    Attributes:
        file: what the page's recorder has exported.
        answers: what the JavaScript client saw.
        shown: the same as text and results, as `ask` returns it.
    """

    file: Path
    answers: Sequence[Any]

    @property
    def exchanges(self) -> Sequence[Any]:
        kept: Sequence[Any] = json.loads(self.file.read_text())["exchanges"]
        return kept

    @property
    def shown(self) -> list[tuple[str, list[tuple[str, object, bool]]]]:
        return [
            (
                one["text"],
                [(each["name"], each["result"], each["isError"]) for each in one["calls"]],
            )
            for one in self.answers
        ]


@pytest.fixture(scope="module")
async def recorded(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    async with frame_cutter(server.url) as cutter:
        cutter.frames, cutter.more = 4, 9
        seen = await drive("record", url=cutter.url)
        assert cutter.cuts > 4
    assert [one["error"] for one in seen["answers"]] == [None] * 3
    file = tmp_path_factory.mktemp("recorded") / "run.json"
    file.write_text(json.dumps(seen["file"]))
    return Recorded(file, seen["answers"])


async def ask(url: str) -> list[tuple[str, list[tuple[str, object, bool]]]]:
    """Have the conversation with the Python client."""
    shown: list[tuple[str, list[tuple[str, object, bool]]]] = []
    async with Client(url, retry=QUICK) as client:

        @client.tool(name="set-color")
        async def set_color(color: str) -> dict[str, str]:
            """Set the color"""
            return {"color": color}

        @client.tool(name="get-time-zone")
        async def get_time_zone() -> str:
            return "UTC"

        @client.tool(name="get-mood")
        async def get_mood() -> str:
            raise RuntimeError("no mood")

        for message in MESSAGES:
            answer = await client.ask(message, conversation_id="c")
            shown.append((answer.text, results_of(answer)))
    return shown


def results_of(answer: Answer) -> list[tuple[str, object, bool]]:
    return [(call.name, call.result, call.is_error) for call in answer.calls]


def without_python_words(shown: list[Any]) -> list[Any]:
    """Leave out the texts of failed tools, which each client words in its own way."""
    return [
        (text, [(name, None if failed else result, failed) for name, result, failed in calls])
        for text, calls in shown
    ]


# ---------------------------------------------------------------- what is recorded
async def test_the_recording_has_the_cuts_and_a_replay_plays_them(recorded: Recorded) -> None:
    cuts = [cut for exchange in recorded.exchanges for cut in exchange["cuts"]]
    assert len(cuts) > 4
    assert all(cut["response"]["status"] == 200 for cut in cuts)
    assert [len(one["cuts"]) > 0 for one in recorded.exchanges][:2] == [True, True]
    async with replaying(recorded.file, "--speed", "0") as url:
        [seen] = await drive("read", urls=[url])
        # each cut of the recording is one of the replay, which is itself recorded here
        again = await drive("record", url=url)
    assert seen == recorded.answers
    for before, after in zip(recorded.exchanges, again["file"]["exchanges"], strict=True):
        assert [cut["after"] for cut in after["cuts"]] == [cut["after"] for cut in before["cuts"]]
        assert after["frames"] == [{**frame, "at": pytest.approx(frame["at"], abs=SECONDS * 1000)}
                                   for frame in before["frames"]]  # fmt: skip


# ---------------------------------------------------------------- every fault
PLACES = range(1, 9)
RETRIED = {"retry_after": 0}
GROUPS: Mapping[str, Sequence[Mapping[str, object]]] = {
    "cuts": [
        *({"cut_after": (place,)} for place in PLACES),
        {"cut_after": tuple(PLACES)},
        {"cut_after": (2,), "delay": 3, "delay_first": 20},
    ],
    "posts": [
        {},
        {"twice": True},
        {"refuse": (429, 503, 503), **RETRIED},
        {"refuse": (503,), "twice": True, "cut_after": (1, 2), **RETRIED},
    ],
    "take-overs": [{"take_over_after": place} for place in PLACES],
    "seeds": [{"seed": seed, **RETRIED} for seed in range(12)],
}


@asynccontextmanager
async def served(app: ASGIApp) -> AsyncGenerator[str]:
    """Serve an application as `passback replay` does, in this process; yield its address."""
    config = uvicorn.Config(
        app,
        http=cast("Any", BoundedHttpProtocol),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    server = QuietServer(config)
    with listening_socket() as listening:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(server.serve, sockets=[listening]))
            try:
                yield f"http://127.0.0.1:{listening.getsockname()[1]}"
            finally:
                server.should_exit = True


@pytest.mark.parametrize("recorded_cuts", [True, False], ids=["recorded cuts", "clean"])
@pytest.mark.parametrize("group", GROUPS)
async def test_the_clients_read_every_faulty_replay_to_the_same_end(
    recorded: Recorded, group: str, recorded_cuts: bool
) -> None:
    recording = load_recording(recorded.file)
    plans = GROUPS[group]
    async with AsyncExitStack() as stack:
        urls: list[str] = []
        for plan in plans:
            faults = PlayFaults(plan, ignores_recorded=not recorded_cuts)
            site = replay_site(recording, speed=0, faults=faults)
            urls.append(await stack.enter_async_context(served(site)))
        seen = await drive("read", urls=urls)
        shown = [await ask(url) for url in urls]
    for plan, answers, of_python in zip(plans, seen, shown, strict=True):
        assert [{**one, "rewinds": 0} for one in answers] == recorded.answers, plan
        assert without_python_words(of_python) == without_python_words(recorded.shown), plan
    rewinds = sum(one["rewinds"] for answers in seen for one in answers)
    assert (rewinds > 0) == (group in ("take-overs", "seeds"))


async def test_a_409_is_shown_once_and_the_next_post_is_answered(recorded: Recorded) -> None:
    flags = ["--speed", "0", "--clean", "--refuse", "409", "--retry-after", "0"]
    [first, *_] = recorded.answers
    async with replaying(recorded.file, *flags) as url:
        [[refused, answered]] = await drive("read", urls=[url], messages=[MESSAGES[0]] * 2)
        [[waited]] = await drive("read", urls=[url], messages=["x"], retryBusy=True)
        # the recording's answer to the second message was the last one that was begun
        async with Client(url, retry=QUICK) as client:
            with pytest.raises(Busy):
                await client.ask(MESSAGES[0])
            answer = await client.ask(MESSAGES[0], wait_while_busy=True)
    busy = {"name": "ApiError", "code": "conversation_busy", "retryAfter": 0}
    assert (refused["error"], refused["text"]) == (busy, "")
    assert answered == first
    assert (waited["error"], answer.failure) == (None, None)
