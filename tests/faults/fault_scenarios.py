"""Scenarios that inject faults while clients post, and check every conversation afterwards.

`play_rounds` injects one fault at a random moment of each round. In `play_random_faults`, many
clients share few conversations, and any fault comes at any time, as in a Jepsen test.
"""

from collections.abc import Sequence

import anyio
from anyio.lowlevel import checkpoint
from tests.faults import checkers
from tests.faults.checkers import COMPLETED, STORE_FAILED, Expectations
from tests.faults.deployment import Deployment
from tests.faults.evidence import FinalState, Operation, Post, open_calls, read_final_state
from tests.faults.faults import InjectedFault, InjectFault, inject_random_fault
from tests.faults.results import Progress, Result
from tests.faults.retrying_client import ClientOptions, RetryingClient
from tests.faults.workers import AGENT
from tests.support.waiting import pause


async def check_operations(
    deployment: Deployment,
    operations: Sequence[Operation],
    expected: Expectations,
    result: Result,
) -> FinalState:
    """Read the final state, and add the operations and all violations to the result."""
    state = await read_final_state(deployment.workers.urls()[0], operations)
    result.count_operations(operations)
    shown = deployment.model.tokens_shown
    result.violations += checkers.check_all(operations, state, shown, expected)
    result.violations += deployment.model.violations
    result.violations += deployment.workers.unexpected_exits
    if result.violations:
        result.diagnostics += [f"{name}: {found}" for name, found in state.histories.items()]
    return state


# ---------------------------------------------------------------- one fault in each round
CONVERSATIONS = 3
ROUNDS = 8
"""Rounds after which the histories are checked, and other conversations begin."""
FAULT_DELAY = 0.4
"""Longest time in seconds until a fault; an answer takes no longer."""


async def play_rounds(
    deployment: Deployment,
    inject: InjectFault,
    points: int,
    expected: Expectations,
    progress: Progress,
) -> Result:
    """Play rounds until there were so many faults, or until violations were found."""
    result = Result()
    options = ClientOptions(forgets_cursor=True)
    clients = [await deployment.client(options) for _ in range(CONVERSATIONS)]
    while result.points < points and not result.violations:
        operations: list[Operation] = []
        names = [deployment.new_token("conversation-") for _ in clients]
        for _ in range(min(ROUNDS, points - result.points)):
            by_conversation = dict(zip(names, clients, strict=True))
            operations += await _play_round(deployment, inject, by_conversation, result)
        await deployment.workers.wait_until_ready()
        limit = deployment.recovery_limit
        result.violations += checkers.check_recovery_times(result.recovery_times, limit)
        result.violations += checkers.check_unsafe_tools(deployment.read_tool_starts())
        await check_operations(deployment, operations, expected, result)
        progress(result)
    return result


async def _play_round(
    deployment: Deployment, inject: InjectFault, clients: dict[str, RetryingClient], result: Result
) -> list[Operation]:
    """Post once to each conversation, inject the fault, and post again.

    The second posts show when the conversations are usable again.
    """
    injected: list[InjectedFault] = []
    operations: list[Operation] = []
    probes: list[Operation] = []

    async def inject_fault() -> None:
        injected.append(await inject(deployment))

    async def probe(client: RetryingClient, post: Post) -> None:
        probes.append(await client.perform(post, retry_busy=True))

    async with anyio.create_task_group() as tasks:
        for conversation, client in clients.items():
            post = _choose_post(deployment, conversation)
            tasks.start_soon(_post_and_answer_calls, deployment, client, post, operations)
        await pause(deployment.random.uniform(0, FAULT_DELAY))
        result.hits += len(clients) - len({each.post.conversation for each in operations})
        tasks.start_soon(inject_fault)
        await checkpoint()
        for conversation, client in clients.items():
            tasks.start_soon(probe, client, Post(conversation, deployment.new_token(), words=5))
    [fault] = injected
    result.points += fault.count
    result.violations += fault.violations
    result.recovery_times += [
        None if each.acknowledged is None else max(0.0, each.acknowledged - fault.recoverable_at)
        for each in probes
    ]
    return operations + probes


def _choose_post(deployment: Deployment, conversation: str) -> Post:
    has_agent = AGENT in deployment.plan.settings
    tool = deployment.random.choice(("once", "again", "ask") if has_agent else ("ask", "", ""))
    words = deployment.random.randint(10, 30)
    return Post(conversation, deployment.new_token(), words=words, tool=tool)


async def _post_and_answer_calls(
    deployment: Deployment, client: RetryingClient, post: Post, operations: list[Operation]
) -> None:
    operation = await client.perform(post, retry_busy=True)
    operations.append(operation)
    for call_id in open_calls(operation.frames):
        answer = Post(post.conversation, deployment.new_token(), call_id=call_id)
        operations.append(await client.perform(answer))


# ---------------------------------------------------------------- any fault at any time
POLICIES = ("enqueue",) * 7 + ("reject", "reject", "interrupt")
CLIENTS = 8
CLIENTS_PER_CONVERSATION = 4
POSTS_PER_CONVERSATION = 25
"""Posts that each client makes to one conversation."""
FAULT_INTERVAL = 1.5
"""Longest time in seconds between two faults."""


async def play_random_faults(deployment: Deployment, points: int, progress: Progress) -> Result:
    """Make so many posts, by `CLIENTS` clients; each makes at least one."""
    result = Result()
    operations: list[Operation] = []
    options = ClientOptions(timeout=60)
    clients = [await deployment.client(options) for _ in range(CLIENTS)]
    count = max(1, points // CLIENTS)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_inject_faults, deployment, result)
        async with anyio.create_task_group() as posting:
            for number, client in enumerate(clients):
                conversation = f"conversation-{number // CLIENTS_PER_CONVERSATION}"
                posting.start_soon(
                    _post_repeatedly, deployment, client, conversation, count, operations
                )
            posting.start_soon(_report_progress, result, operations, CLIENTS * count, progress)
        tasks.cancel_scope.cancel()
    for proxy in deployment.proxies:
        proxy.lose_replies(0)
        proxy.go_on()
    await deployment.workers.wait_until_ready()
    result.points = len(operations)
    outcomes = COMPLETED | {"cancelled"} | (STORE_FAILED if deployment.store else frozenset())
    await check_operations(deployment, operations, Expectations(outcomes), result)
    return result


async def _inject_faults(deployment: Deployment, result: Result) -> None:
    while True:
        await pause(deployment.random.uniform(0, FAULT_INTERVAL))
        with anyio.CancelScope(shield=True):
            fault = await inject_random_fault(deployment)
        result.hits += fault.count
        result.violations += fault.violations


async def _post_repeatedly(
    deployment: Deployment,
    client: RetryingClient,
    conversation: str,
    count: int,
    operations: list[Operation],
) -> None:
    for index in range(count):
        policy = deployment.random.choice(POLICIES)
        words = deployment.random.randint(5, 30)
        name = f"{conversation}-{index // POSTS_PER_CONVERSATION}"
        post = Post(name, deployment.new_token(), policy, words=words)
        operations.append(await client.perform(post, retry_busy=policy == "reject"))


async def _report_progress(
    result: Result, operations: list[Operation], total: int, progress: Progress
) -> None:
    while len(operations) < total:
        await pause(1)
        so_far = Result(len(operations), result.hits)
        so_far.count_operations(operations)
        progress(so_far)
