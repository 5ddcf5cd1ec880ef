"""Posts while a run goes on, against a model of the four policies: hypothesis chooses what happens and in which order."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from tests.faults.pace import pause
from tests.faults.policies import exchanges_of
from tests.faults.records import Post
from tests.faults.world import Plan, StoreKind, World, world
from tests.support.lanes import rounds
from tests.support.wire import Client, Json, client_of
from typing_extensions import override

SECONDS = 15
WHOLE, CUT = "whole", "cut"


@dataclass
class Expected:
    """The model: what the conversation must look like.

    Attributes:
        exchanges: the posted messages that are kept, and whether their answers are whole.
        running: whose run goes on; empty: none.
        waiting: whose runs wait.
    """

    exchanges: dict[str, str] = field(default_factory=dict[str, str])
    running: str = ""
    waiting: list[str] = field(default_factory=list[str])

    def post(self, token: str, policy: str) -> bool:
        """False: it is refused."""
        if not self.running:
            self._begin(token)
        elif policy == "reject":
            return False
        elif policy == "enqueue":
            self.waiting.append(token)
        else:
            self._stop_all(rolls_back=policy == "rollback")
            self._begin(token)
        return True

    def _begin(self, token: str) -> None:
        self.exchanges[token] = WHOLE
        self.running = token

    def _stop_all(self, *, rolls_back: bool) -> None:
        """What runs and what waits is cut, one after the other; a rollback takes the last of them back."""
        for token in (self.running, *self.waiting):
            self.exchanges[token] = CUT
        if rolls_back:
            self.exchanges.popitem()
        self.waiting.clear()

    def end(self) -> None:
        """The run that goes on ends, the next one begins."""
        self.running = ""
        if self.waiting:
            self._begin(self.waiting.pop(0))

    def cancel(self, token: str) -> None:
        """One that waits leaves without a trace."""
        if token in self.waiting:
            self.waiting.remove(token)
            return
        self.exchanges[token] = CUT
        self.end()

    def one(self, place: int) -> str:
        """Of those that run or wait."""
        tokens = [self.running, *self.waiting]
        return tokens[place % len(tokens)]


class Driver:
    """Does to a real conversation, by any of the workers, what the model does to itself."""

    def __init__(self, scene: World) -> None:
        self.conversation = scene.token("conversation-")
        self.expected = Expected()
        self._scene = scene
        self._runs: dict[str, str] = {"": ""}

    async def post(self, policy: str) -> None:
        token = self._scene.token()
        self._scene.model.gates[token] = anyio.Event()
        accepted = self.expected.post(token, policy)
        status, self._runs[token] = await self._send(token, policy)
        assert status == (200 if accepted else 409)
        await self._settled()

    async def repeat(self, token: str, policy: str) -> None:
        """A post that runs or waits comes once more, and changes nothing."""
        assert await self._send(token, policy) == (200, self._runs[token])
        await self._settled()

    async def _send(self, token: str, policy: str) -> tuple[int, str]:
        """The status and the run; the stream is left."""
        post = Post(self.conversation, token, words=2, pace=1)
        headers = {"idempotency-key": token}
        async with (
            self._client() as client,
            client.stream(
                self.conversation, [post.message], headers=headers, onBusy=policy
            ) as stream,
        ):
            return stream.status, stream.headers.get("x-run-id", "")

    async def end(self) -> None:
        """The run that goes on may say the rest."""
        self._scene.model.gates[self.expected.running].set()
        self.expected.end()
        await self._settled()

    async def cancel(self, token: str) -> None:
        path = f"/conversations/{self.conversation}/cancel"
        async with self._client() as client:
            answer = await client.http.post(path, params={"runId": self._runs[token]})
        assert answer.status_code == 202
        self.expected.cancel(token)
        await self._settled()

    async def _settled(self) -> None:
        """Wait until the conversation stands as the model does, and its run has begun to answer."""
        running, waiting = self.expected.running, self.expected.waiting
        wanted = (self._runs[running], [self._runs[token] for token in waiting])
        stands: Json = {}
        async with self._client() as client:
            with anyio.move_on_after(SECONDS):
                while _stands(stands) != wanted or (running and not self._asked(running)):
                    await pause(0.01)
                    stands = await client.conversation(self.conversation)
        assert _stands(stands) == wanted
        assert not running or self._asked(running) == 1

    def _asked(self, token: str) -> int:
        return self._scene.model.asked[token]

    async def finish(self) -> None:
        """Let all end, and compare the histories."""
        while self.expected.running:
            await self.end()
        async with self._client() as client:
            stands = await client.conversation(self.conversation)
        exchanges = exchanges_of(stands.get("messages", []))
        assert {token: _state(answers) for token, answers in exchanges.items()} == (
            self.expected.exchanges
        )
        assert list(exchanges) == list(self.expected.exchanges)

    def _client(self) -> AbstractAsyncContextManager[Client]:
        return client_of(self._scene.random.choice(self._scene.fleet.urls()))


def _stands(stands: Json) -> tuple[str, list[str]] | None:
    if "queued" not in stands:
        return ("", []) if stands.get("code") == "conversation_not_found" else None
    return (stands["runId"] if stands["status"] == "running" else ""), stands["queued"]


def _state(answers: Sequence[Json]) -> str:
    """A run that was cut before it said anything has no answer."""
    match [bool(answer.get("partial")) for answer in answers]:
        case [False]:
            return WHOLE
        case [] | [True]:
            return CUT
        case _:
            return f"{len(answers)} answers"


# ---------------------------------------------------------------- what hypothesis does
POLICIES = st.sampled_from(["reject", "enqueue", "enqueue", "interrupt", "rollback"])
PLACES = st.integers(0, 3)


def machine_of(portal: BlockingPortal, scene: World) -> type[RuleBasedStateMachine]:
    class Conversation(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.driver = Driver(scene)

        @rule(policy=POLICIES)
        def post(self, policy: str) -> None:
            portal.call(self.driver.post, policy)

        @precondition(lambda self: self.driver.expected.running)
        @rule(place=PLACES, policy=POLICIES)
        def repeat(self, place: int, policy: str) -> None:
            portal.call(self.driver.repeat, self.driver.expected.one(place), policy)

        @precondition(lambda self: self.driver.expected.running)
        @rule()
        def end(self) -> None:
            portal.call(self.driver.end)

        @precondition(lambda self: self.driver.expected.running)
        @rule(place=PLACES)
        def cancel(self, place: int) -> None:
            portal.call(self.driver.cancel, self.driver.expected.one(place))

        @override
        def teardown(self) -> None:
            portal.call(self.driver.finish)

    return Conversation


@pytest.mark.promise("P8")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("store", ["sqlite", pytest.param("redis", marks=pytest.mark.redis)])
def test_posts_while_a_run_goes_on_do_what_the_model_of_their_policy_says(store: StoreKind) -> None:
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(world(Plan(store, 2, lease=10), 0)) as scene,
    ):
        run_state_machine_as_test(machine_of(portal, scene), settings=SETTINGS)


SETTINGS = settings(
    max_examples=rounds(2, nightly=20),
    stateful_step_count=10,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    # a shorter example would take minutes
    phases=(Phase.generate,),
)
