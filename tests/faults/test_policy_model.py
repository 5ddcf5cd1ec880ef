"""Random posts during a run, against a model of the four policies.

`ExpectedConversation` is the model. Hypothesis chooses what happens and in which order.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from tests.faults.deployment import Deployment, DeploymentPlan, StoreKind, running_deployment
from tests.faults.evidence import Post
from tests.faults.post_scenarios import answers_by_token
from tests.support.lanes import rounds
from tests.support.waiting import pause
from tests.support.wire import Client, Json, client_of
from typing_extensions import override

SECONDS = 15
COMPLETE, STOPPED = "complete", "stopped"


@dataclass
class ExpectedConversation:
    """The conversation as the policies say it must be.

    Attributes:
        answers: the tokens of the stored messages, and whether their answers are complete.
        running: the token of the active run; empty: none.
        waiting: the tokens of the queued runs.
    """

    answers: dict[str, str] = field(default_factory=dict[str, str])
    running: str = ""
    waiting: list[str] = field(default_factory=list[str])

    def post(self, token: str, policy: str) -> bool:
        """Post a message. False: it is refused."""
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
        self.answers[token] = COMPLETE
        self.running = token

    def _stop_all(self, *, rolls_back: bool) -> None:
        """Stop the active run and the queued ones in turn; a rollback removes the last message."""
        for token in (self.running, *self.waiting):
            self.answers[token] = STOPPED
        if rolls_back:
            self.answers.popitem()
        self.waiting.clear()

    def end(self) -> None:
        """End the active run; the next one begins."""
        self.running = ""
        if self.waiting:
            self._begin(self.waiting.pop(0))

    def cancel(self, token: str) -> None:
        """Cancel a run; a queued one leaves without a trace."""
        if token in self.waiting:
            self.waiting.remove(token)
            return
        self.answers[token] = STOPPED
        self.end()

    def choose_run(self, number: int) -> str:
        """Return the token of an active or queued run."""
        tokens = [self.running, *self.waiting]
        return tokens[number % len(tokens)]


class Driver:
    """Takes each step on a real conversation, by any of the workers, and on its model."""

    def __init__(self, deployment: Deployment) -> None:
        self.conversation = deployment.new_token("conversation-")
        self.expected = ExpectedConversation()
        self._deployment = deployment
        self._runs: dict[str, str] = {"": ""}

    async def post(self, policy: str) -> None:
        token = self._deployment.new_token()
        self._deployment.model.gates[token] = anyio.Event()
        accepted = self.expected.post(token, policy)
        status, self._runs[token] = await self._send(token, policy)
        assert status == (200 if accepted else 409)
        await self._wait_until_as_expected()

    async def repeat(self, token: str, policy: str) -> None:
        """Repeat a post whose run is active or queued; it changes nothing."""
        assert await self._send(token, policy) == (200, self._runs[token])
        await self._wait_until_as_expected()

    async def _send(self, token: str, policy: str) -> tuple[int, str]:
        """Post, and leave the stream; return the status and the run."""
        post = Post(self.conversation, token, words=2, delay=1)
        headers = {"idempotency-key": token}
        async with (
            self._client() as client,
            client.stream(
                self.conversation, [post.message], headers=headers, onBusy=policy
            ) as stream,
        ):
            return stream.status, stream.headers.get("x-run-id", "")

    async def end(self) -> None:
        """Let the active run write the rest of its answer."""
        self._deployment.model.gates[self.expected.running].set()
        self.expected.end()
        await self._wait_until_as_expected()

    async def cancel(self, token: str) -> None:
        path = f"/conversations/{self.conversation}/cancel"
        async with self._client() as client:
            answer = await client.http.post(path, params={"runId": self._runs[token]})
        assert answer.status_code == 202
        self.expected.cancel(token)
        await self._wait_until_as_expected()

    async def _wait_until_as_expected(self) -> None:
        """Wait until the runs are those of the model, and the active one has called its model."""
        running, waiting = self.expected.running, self.expected.waiting
        wanted = (self._runs[running], [self._runs[token] for token in waiting])
        found: Json = {}
        async with self._client() as client:
            with anyio.move_on_after(SECONDS):
                while _runs_of(found) != wanted or (running and not self._call_count(running)):
                    await pause(0.01)
                    found = await client.conversation(self.conversation)
        assert _runs_of(found) == wanted
        assert not running or self._call_count(running) == 1

    def _call_count(self, token: str) -> int:
        return self._deployment.model.call_counts[token]

    async def finish(self) -> None:
        """End all runs, and compare the histories."""
        while self.expected.running:
            await self.end()
        async with self._client() as client:
            found = await client.conversation(self.conversation)
        stored = {
            token: _answer_state(answers)
            for token, answers in answers_by_token(found.get("messages", [])).items()
        }
        assert list(stored.items()) == list(self.expected.answers.items())

    def _client(self) -> AbstractAsyncContextManager[Client]:
        return client_of(self._deployment.random.choice(self._deployment.workers.urls()))


def _runs_of(conversation: Json) -> tuple[str, list[str]] | None:
    """Return the active run and the queued ones; None: they could not be read."""
    if "queued" not in conversation:
        return ("", []) if conversation.get("code") == "conversation_not_found" else None
    active = conversation["runId"] if conversation["status"] == "running" else ""
    return active, conversation["queued"]


def _answer_state(answers: Sequence[Json]) -> str:
    match [bool(answer.get("partial")) for answer in answers]:
        case [False]:
            return COMPLETE
        case [] | [True]:  # nothing, if the run was stopped before its first word
            return STOPPED
        case _:
            return f"{len(answers)} answers"


# ---------------------------------------------------------------- the state machine
POLICIES = st.sampled_from(["reject", "enqueue", "enqueue", "interrupt", "rollback"])
RUN_NUMBERS = st.integers(0, 3)


def build_machine(portal: BlockingPortal, deployment: Deployment) -> type[RuleBasedStateMachine]:
    class Conversation(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.driver = Driver(deployment)

        @rule(policy=POLICIES)
        def post(self, policy: str) -> None:
            portal.call(self.driver.post, policy)

        @precondition(lambda self: self.driver.expected.running)
        @rule(number=RUN_NUMBERS, policy=POLICIES)
        def repeat(self, number: int, policy: str) -> None:
            portal.call(self.driver.repeat, self.driver.expected.choose_run(number), policy)

        @precondition(lambda self: self.driver.expected.running)
        @rule()
        def end(self) -> None:
            portal.call(self.driver.end)

        @precondition(lambda self: self.driver.expected.running)
        @rule(number=RUN_NUMBERS)
        def cancel(self, number: int) -> None:
            portal.call(self.driver.cancel, self.driver.expected.choose_run(number))

        @override
        def teardown(self) -> None:
            portal.call(self.driver.finish)

    return Conversation


@pytest.mark.promise("P8")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("store", ["sqlite", pytest.param("redis", marks=pytest.mark.redis)])
def test_posts_during_a_run_do_what_the_model_of_their_policy_says(store: StoreKind) -> None:
    plan = DeploymentPlan(store, 2, lease=10)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(running_deployment(plan, 0)) as deployment,
    ):
        run_state_machine_as_test(build_machine(portal, deployment), settings=SETTINGS)


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
