"""A site with `/process` over a log that a test writes."""

from typing import Any

from starlette.types import ASGIApp
from tests.support.agent_api import PATH, Json, events_of, user
from tests.support.asgi_client import Answer, ask_json
from tests.support.logged_runs import OPENING, RUN, LoggedRuns

from passback.core.events import (
    Completed,
    RunEvent,
    RunFinished,
    RunStarted,
    TextDelta,
    TurnStarted,
)
from passback.core.messages import MessageId
from passback.core.signals import Signal
from passback.http.gate import Access
from passback.http.site import build_site
from passback.http.wires import Services
from passback.wire.agent_api import build

HELLO: Json = {"input": [user("hello")], "session_id": "c"}
GREETING: tuple[RunEvent, ...] = (
    RunStarted(RUN.run_id),
    TurnStarted(MessageId("msg_1")),
    TextDelta("hi"),
    RunFinished(Completed()),
)


def site(runs: LoggedRuns, access: Access | None = None, **settings: Any) -> ASGIApp:
    services = Services(runs, Signal(), **settings)
    return build_site([build(services)], access or Access())


async def post(runs: LoggedRuns, value: object, **request: Any) -> Answer:
    return await ask_json(site(runs), "POST", PATH, value, **request)


def streamed(answer: Answer) -> list[Json]:
    """Return the events of a streamed answer."""
    assert answer.body.startswith(OPENING.encode())
    return events_of(answer.body)
