"""Scenarios of posts at the same time: many posts to one conversation, and one post many times."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import anyio
from tests.faults import checkers
from tests.faults.checkers import Expectations
from tests.faults.deployment import Deployment
from tests.faults.evidence import (
    FinalState,
    Operation,
    Post,
    message_token,
    operation_from_json,
    run_outcome,
)
from tests.faults.fault_scenarios import check_operations
from tests.faults.results import Progress, Result
from tests.faults.retrying_client import ASK_TOOL
from tests.support.wire import Answer, Json, client_of, merged

# ---------------------------------------------------------------- many posts
POSTS = 50
PROCESSES = 4
SECONDS = 120
STOPPING = {"interrupt", "rollback"}
REFUSALS = {
    "reject": "409 conversation_busy",
    "enqueue": "queue_full",
    "interrupt": "queue_full",
    "rollback": "queue_full",
}
"""For each policy, the end of the only refusal that it may give."""


async def play_policies(deployment: Deployment, points: int, progress: Progress) -> Result:
    """Make many posts at once to one conversation in each point.

    All posts of a conversation have the same policy; in every fifth one the policies are mixed.
    """
    result = Result()
    names = [*REFUSALS, ""]
    for point in range(points):
        policy = names[point % len(names)]
        conversation = deployment.new_token(f"{policy or 'mixed'}-")
        posts = [_choose_post(deployment, conversation, policy) for _ in range(POSTS)]
        with anyio.fail_after(SECONDS):
            operations = await _post_from_processes(deployment, posts)
        outcomes = {"completed", "cancelled"} if not policy or policy in STOPPING else {"completed"}
        expected = Expectations(frozenset(outcomes), acknowledged_share=0.0, allows_rollback=True)
        state = await check_operations(deployment, operations, expected, result)
        result.violations += check_policy(operations, state, conversation)
        result.points += 1
        progress(result)
    return result


def _choose_post(deployment: Deployment, conversation: str, policy: str) -> Post:
    policy = policy or deployment.random.choice(list(REFUSALS))
    words = deployment.random.randint(3, 10)
    return Post(conversation, deployment.new_token(), policy, words=words, delay=5)


async def _post_from_processes(deployment: Deployment, posts: Sequence[Post]) -> list[Operation]:
    """Let each process send its share of the posts, all at the same time."""
    operations: list[Operation] = []
    ready, go = anyio.create_memory_object_stream[None](PROCESSES), anyio.Event()
    urls = list(deployment.workers.urls())

    async def send(number: int) -> None:
        job = {"urls": urls, "seed": deployment.random.random(), "posts": []}
        job["posts"] = [asdict(post) for post in posts[number::PROCESSES]]
        command = [sys.executable, "-m", "tests.faults.retrying_client", json.dumps(job)]
        async with await anyio.open_process(command, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            output = await process.stdout.receive()
            await ready[0].send(None)
            await go.wait()
            await process.stdin.send(b"go\n")
            output += b"".join([chunk async for chunk in process.stdout])
        lines = output.decode().splitlines()
        operations.extend(map(operation_from_json, json.loads(lines[-1])))

    async with anyio.create_task_group() as tasks, ready[0], ready[1]:
        for number in range(PROCESSES):
            tasks.start_soon(send, number)
        for _ in range(PROCESSES):
            await ready[1].receive()
        go.set()
    return operations


def check_policy(
    operations: Sequence[Operation], state: FinalState, conversation: str
) -> list[str]:
    """Check the history against the acknowledged posts and the outcomes of their runs."""
    violations: list[str] = []
    outcomes = {
        each.post.token: run_outcome(state.replays.get(each.run_id, ())) for each in operations
    }
    has_rollback = any(each.post.policy == "rollback" for each in operations)
    answers = answers_by_token(state.histories.get(conversation, []))
    for each in operations:
        token, policy = each.post.token, each.post.policy
        if each.completion == "refused" and not each.refusal.endswith(REFUSALS[policy]):
            violations.append(f"{token} ({policy}) was refused with {each.refusal}")
        if each.completion == "ok" and not (
            has_rollback and token not in answers and outcomes[token] == "cancelled"
        ):
            violations += _check_exchange(token, answers.get(token), outcomes[token])
    if not any(each.completion == "ok" for each in operations):
        violations.append("all posts were refused")
    if all(each.post.policy == "rollback" for each in operations):
        stopped = [token for token in answers if outcomes.get(token) == "cancelled"]
        violations += [f"{token} was not rolled back" for token in stopped]
    if answers and not _is_answered(list(answers)[-1], operations, answers, outcomes):
        violations.append("the last message has no complete answer")
    return violations


def _is_answered(
    token: str,
    operations: Sequence[Operation],
    answers: Mapping[str, Sequence[Json]],
    outcomes: Mapping[str, str],
) -> bool:
    """Return whether a message has a complete answer, and its run, if its client knows it, too.

    The client of a request that got no answer may have been refused when it came again, and the
    first one was stored meanwhile.
    """
    unsure = {each.post.token for each in operations if each.indeterminate and not each.run_id}
    is_complete = [bool(answer.get("partial")) for answer in answers[token]] == [False]
    return is_complete and (outcomes.get(token) == "completed" or token in unsure)


def _check_exchange(token: str, answers: Sequence[Json] | None, outcome: str) -> list[str]:
    """Check one acknowledged message and the answers after it."""
    if answers is None:
        return [f"{token} is missing, its run {outcome}"]
    partial = [bool(answer.get("partial")) for answer in answers]
    if outcome == "completed" and partial != [False]:
        return [f"{token} has no complete answer, its run completed"]
    if outcome == "cancelled" and partial not in ([True], []):
        return [f"{token} has a complete answer, its run was cancelled"]
    return []


def answers_by_token(history: Sequence[Json]) -> dict[str, list[Json]]:
    """Return the messages after each posted one, by its token."""
    answers: dict[str, list[Json]] = {}
    for message in history:
        if token := message_token(message):
            answers[token] = []
        elif answers:
            answers[list(answers)[-1]].append(message)
    return answers


# ---------------------------------------------------------------- one post many times
REPEATS = 10


async def play_repeats(deployment: Deployment, points: int, progress: Progress) -> Result:
    """Make one post `REPEATS` times at once, and once after its end.

    In every other point the post is recognised by its key, else by its message's id.
    """
    result = Result()
    for point in range(points):
        conversation, token = deployment.new_token("conversation-"), deployment.new_token()
        post = Post(conversation, token, tool="ask" if point % 3 == 2 else "")
        answers = await _post_repeatedly(deployment, post, keyed=point % 2 == 0)
        result.points += 1
        result.posts += len(answers)
        result.acknowledged += sum(answer.status == 200 for answer in answers)
        result.violations += _compare_answers(post, answers)
        result.violations += await _check_single_run(deployment, post)
        progress(result)
    return result


async def _post_repeatedly(deployment: Deployment, post: Post, *, keyed: bool) -> list[Answer]:
    answers: list[Answer] = []
    headers = {"idempotency-key": post.token} if keyed else {}

    async def send(url: str) -> None:
        async with client_of(url) as client:
            answers.append(
                await client.post(
                    post.conversation,
                    post.message,
                    headers=headers,
                    tools=[ASK_TOOL],
                    include=["run"],
                )
            )

    urls = deployment.workers.urls()
    async with anyio.create_task_group() as tasks:
        for number in range(REPEATS):
            tasks.start_soon(send, urls[number % len(urls)])
    await send(urls[0])
    return answers


def _compare_answers(post: Post, answers: Sequence[Answer]) -> list[str]:
    violations: list[str] = []
    streams = [merged(answer.frames) for answer in answers]
    for answer, stream in zip(answers, streams, strict=True):
        if answer.status != 200:
            violations.append(f"a repeat of {post.token} got {answer.status} {answer.body[:100]!r}")
        elif stream != streams[-1]:
            violations.append(f"a repeat of {post.token} got another stream")
        else:
            violations += checkers.check_single_end(post.token, answer.frames)
    return violations


async def _check_single_run(deployment: Deployment, post: Post) -> list[str]:
    violations: list[str] = []
    calls = deployment.model.call_counts[post.token]
    if calls != 1:
        violations.append(f"{post.token} was repeated, and the model was called {calls} times")
    async with client_of(deployment.workers.urls()[0]) as client:
        messages = (await client.conversation(post.conversation)).get("messages", ())
    if len(messages) != 2:
        violations.append(f"{post.token} and its answer are {len(messages)} messages")
    return violations
