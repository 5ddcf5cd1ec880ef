"""Forks over HTTP: they use the agent's cache at the model's service, byte by byte."""

import pytest
from tests.e2e.model_apis import DIALECTS, Dialect
from tests.support.model_server import Request, listening

from passback import Agent, Fork, tool
from passback.core.events import Completed, RunFinished
from passback.core.messages import ToolMessage
from passback.session import Session

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def look(where: str) -> str:
    """Look somewhere."""
    return f"two boxes in the {where}"


def parts_of(request: Request) -> tuple[bytes, bytes]:
    """A request up to the end of what was said last, and what follows."""
    # where the cache is to end is no part of what it holds
    body = request.body.replace(b',"cache_control":{"type":"ephemeral"}', b"")
    end = body.rindex(b'],"stream"')
    end -= body[:end].endswith(b"]}") * len(b"]}")
    return body[:end], body[end:]


@pytest.mark.parametrize("dialect", DIALECTS, ids=str)
async def test_the_request_of_a_fork_begins_with_that_of_its_agent(dialect: Dialect) -> None:
    forks = [(f"id-{words}", "fork", f'{{"task": "{words}"}}') for words in ("count", "weigh")]
    replies = [dialect.calls(("id-1", "look", '{"where": "cellar"}')), dialect.calls(*forks)]
    replies += [dialect.says("here"), dialect.says("there"), dialect.says("All told.")]
    async with listening(dialect.serve(replies)) as model:
        agent = Agent(
            model=f"{dialect.kind}:mock",
            prompt="You keep a cellar.",
            tools=[look],
            agents=[Fork()],
            context=lambda run: f"You work for {run.key.owner}.",
        )
        service = {"MODEL_BASE_URL": model.base_url, "MODEL_API_KEY": "key"}
        async with Session(agent, settings=service) as session:
            seen = [event async for event in session.submit("What is in the cellar?")]
            results = [m.content for m in await session.messages() if isinstance(m, ToolMessage)]
    model.assert_no_violations()
    assert seen[-1] == RunFinished(Completed())
    assert sorted(map(str, results)) == ["here", "there", "two boxes in the cellar"]
    _, calling, *made, _ = model.requests
    before, behind = parts_of(calling)
    tasks: list[bytes] = []
    for fork in made:
        shown, follows = parts_of(fork)
        assert shown.startswith(before)
        assert follows == behind
        tasks.append(shown[len(before) :])
    assert sorted((b"count" in task, b"weigh" in task) for task in tasks) == [
        (False, True),
        (True, False),
    ]
