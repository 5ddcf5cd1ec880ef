"""A site with the AI SDK's chats over a log that a test writes."""

from dataclasses import replace
from typing import Any

from starlette.types import ASGIApp
from tests.support.ai_sdk import API, Json, chunks_of, user
from tests.support.asgi_client import Answer, ask_json
from tests.support.logged_runs import RUN, LoggedRuns

from passback.core.changes import Status
from passback.core.events import Completed, RunEvent, RunFinished, TextDelta, TurnStarted
from passback.core.messages import Message, MessageId
from passback.core.signals import Signal
from passback.http.gate import Access
from passback.http.site import build_site
from passback.http.wires import Services
from passback.wire.ai_sdk import build

GREETING: tuple[RunEvent, ...] = (
    TurnStarted(MessageId("msg_1")),
    TextDelta("hi"),
    RunFinished(Completed()),
)
HELLO: Json = {"id": "c", "messages": [user("hello")]}
OPENING = ": conversation c\n\n"


def site(runs: LoggedRuns, access: Access | None = None, **settings: Any) -> ASGIApp:
    services = Services(runs, Signal(), **settings)
    return build_site([build(services)], access or Access())


async def post(runs: LoggedRuns, value: object, **request: Any) -> Answer:
    return await ask_json(site(runs), "POST", API, value, **request)


def streamed(answer: Answer) -> list[Json]:
    """Return the chunks of a streamed answer."""
    assert answer.body.startswith(OPENING.encode())
    return chunks_of(answer.body)


def recorded(*messages: Message, **status: Any) -> LoggedRuns:
    """Runs of a conversation that has these messages."""
    runs = LoggedRuns(*GREETING)
    runs.history = messages
    known = Status(1, RUN.run_id, message_count=len(messages))
    runs.known[RUN.key] = replace(known, **status)
    return runs
