"""Impossible ids of runs and events are refused on every route, before anything is looked up."""

from collections.abc import Mapping

import pytest
from starlette.types import ASGIApp
from tests.support.asgi_client import ask
from tests.support.logged_runs import RUN, LoggedRuns
from typing_extensions import override

from passback.core.changes import Status
from passback.core.events import Completed, RunFinished, RunStarted, TextDelta
from passback.core.messages import ConversationKey
from passback.core.signals import Signal
from passback.http.gate import Access
from passback.http.site import build_site
from passback.http.wires import Services
from passback.wire import ag_ui, agent_api, rest, send_message

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P13")]

JSON = {"content-type": "application/json"}
ENCODED = {
    "CR LF": "x%0d%0aX-Injected:1",
    "CR": "x%0d",
    "LF": "x%0a",
    "NUL": "x%00",
    "DEL": "x%7f",
    "U+2028": "x%e2%80%a8",
    "invalid UTF-8": "x%ff",
    "a blank": "x%20y",
    "a slash": "x%2fy",
    "129 characters": "x" * 129,
}
"""Run ids, encoded for a URL."""
SENT = {"DEL": "x\x7f", "above ASCII": "x\xe9", "a blank": "x y", "129 characters": "x" * 129}
"""Run ids that a header can carry."""
FOLLOWED = {
    "events": ("/conversations/c/stream?", {}),
    "a document": ("/conversations/c/stream?wait=1&", {}),
    "text": ("/conversations/c/stream?", {"accept": "text/plain"}),
    "the Agent API's events": ("/process/c/stream?", {}),
    "the Agent API's document": ("/process/c/stream?stream=false&", {}),
}


class _RecordingRuns(LoggedRuns):
    """Runs that record the conversations that are looked up."""

    def __init__(self) -> None:
        super().__init__(RunStarted(RUN.run_id), TextDelta("hi"), RunFinished(Completed()))
        self.known[RUN.key] = Status(3, RUN.run_id, message_count=2)
        self.looked_up: list[ConversationKey] = []

    @override
    async def status(self, key: ConversationKey, /) -> Status:
        self.looked_up.append(key)
        return await super().status(key)


def _app(runs: LoggedRuns) -> ASGIApp:
    services = Services(runs, Signal())
    wires = [wire.build(services) for wire in (send_message, agent_api, ag_ui, rest)]
    return build_site(wires, Access())


class _RefusingServer:
    """A server that has to refuse each request without looking anything up."""

    def __init__(self) -> None:
        self.runs = _RecordingRuns()
        self._app = _app(self.runs)

    async def check(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
    ) -> None:
        answer = await ask(self._app, method, path, headers=headers, body=body)
        assert (answer.status, answer.code) == (404, "run_not_found"), path
        assert answer.json["request_id"] == answer.headers["x-request-id"]
        runs = self.runs
        assert (runs.looked_up, runs.posts, runs.cancelled, runs.readers) == ([], [], [], 0)


@pytest.mark.parametrize("form", FOLLOWED.values(), ids=FOLLOWED)
async def test_a_run_with_an_impossible_id_is_not_followed(
    form: tuple[str, dict[str, str]],
) -> None:
    server, (path, headers) = _RefusingServer(), form
    for run in ENCODED.values():
        for query in (f"runId={run}", f"lastEventId={run}.1-1", f"lastEventId={run}.1-1~2"):
            await server.check("GET", path + query, headers)
    for run in SENT.values():
        await server.check("GET", path, {**headers, "last-event-id": f"{run}.1-1"})


@pytest.mark.parametrize("path", ["/send-message", "/process", "/ag-ui"])
async def test_a_post_with_an_impossible_event_id_starts_nothing(path: str) -> None:
    server = _RefusingServer()
    for run in SENT.values():
        await server.check("POST", path, {**JSON, "last-event-id": f"{run}.1-1"}, b"{}")


async def test_a_run_with_an_impossible_id_is_not_cancelled() -> None:
    server, path = _RefusingServer(), "/conversations/c/cancel"
    for run in ENCODED.values():
        await server.check("POST", f"{path}?runId={run}", {})
    for text in (r"x\r\nX-Injected:1", r"x\u0000", r"x\u2028", "x" * 129):
        await server.check("POST", path, JSON, b'{"runId":"%b"}' % text.encode())


@pytest.mark.parametrize("run", ["x" * 128, "A-Z_a.z-0.9"])
async def test_a_possible_id_is_looked_up(run: str) -> None:
    runs = _RecordingRuns()
    answer = await ask(_app(runs), "POST", f"/conversations/c/cancel?runId={run}")
    assert (answer.status, answer.code) == (404, "run_not_found")
    assert runs.looked_up == [RUN.key]
