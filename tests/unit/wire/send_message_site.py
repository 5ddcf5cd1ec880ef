"""A site with `/send-message` over a log that a test writes."""

from typing import Any

from starlette.types import ASGIApp
from tests.support.asgi_client import Answer, ask_json
from tests.support.logged_runs import RUN, LoggedRuns

from passback.core.events import Completed, RunFinished, RunStarted, TextDelta
from passback.core.signals import Signal
from passback.http.gate import Access
from passback.http.site import build_site
from passback.http.wires import Services
from passback.wire.send_message import build

PATH = "/send-message"
HELLO: dict[str, Any] = {"conversationId": "c", "messages": [{"role": "user", "content": "hello"}]}
STREAM = b'id: run_1.1-2\ndata: {"type":"text","content":"hi"}\n\nid: run_1.1-3\ndata: [DONE]\n\n'
"""The frames of `greeting()`."""


def greeting() -> LoggedRuns:
    """Return the log of a run that says hi."""
    return LoggedRuns(RunStarted(RUN.run_id), TextDelta("hi"), RunFinished(Completed()))


def site(runs: LoggedRuns, access: Access | None = None, **settings: Any) -> ASGIApp:
    services = Services(runs, Signal(), **settings)
    return build_site([build(services)], access or Access())


async def send(runs: LoggedRuns, value: object, **request: Any) -> Answer:
    return await ask_json(site(runs), "POST", PATH, value, **request)
