"""Headers of every answer: no sniffing of types, no sharing with other sites, no caching."""

import anyio
import httpx
import pytest
from tests.e2e.test_heads import exchange
from tests.support.server import running_server
from tests.support.wire import PATH, SECONDS, user

from passback.http.protocol import HEAD_BYTES

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P13")]

SITE = "https://app.example.com"
KEY = "key-of-ann-0123456789"
POST = {"conversationId": "c", "messages": [user("hi")]}


def check_safe(headers: httpx.Headers, cached: str = "no-store") -> None:
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] == cached


async def test_every_answer_has_the_headers() -> None:
    environment = {"PASSBACK_API_KEYS": f"ann:{KEY}", "PASSBACK_ALLOWED_ORIGINS": SITE}
    bearer = {"authorization": f"Bearer {KEY}"}
    async with (
        running_server("--model", "demo:fast", environment=environment) as server,
        httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=SECONDS) as client,
    ):
        with anyio.fail_after(30):
            stream = await client.post(PATH, json=POST, headers=bearer)
            text = await client.post(PATH, json=POST, headers={**bearer, "accept": "text/plain"})
            events = await client.get("/process/c/stream", headers=bearer)
            for each in (stream, text, events):
                assert each.status_code == 200
                check_safe(each.headers, "no-store, no-transform")
            for path in ("/", "/playground/main.js"):
                page = await client.get(path)
                assert page.status_code == 200
                check_safe(page.headers, "no-cache")
            claim = "/conversations/c/tool-calls/x/claim"
            preflight = {"origin": SITE, "access-control-request-method": "POST"}
            cancel = {"runId": "run_x"}
            answers = [
                (200, await client.get("/healthz")),
                (200, await client.get("/readyz")),
                (200, await client.head("/healthz")),
                (200, await client.get("/openapi.json", headers=bearer)),
                (200, await client.post(f"{PATH}?wait=1", json=POST, headers=bearer)),
                (401, await client.get("/conversations/c")),
                (404, await client.get("/nowhere", headers=bearer)),
                (404, await client.post(claim, json={"claimant": "x"}, headers=bearer)),
                (404, await client.post("/conversations/c/cancel", json=cancel, headers=bearer)),
                (405, await client.get(PATH, headers=bearer)),
                (415, await client.post(PATH, content=b"x", headers=bearer)),
                (421, await client.get("/healthz", headers={"host": "evil.example"})),
                (403, await client.get("/healthz", headers={"origin": "http://evil.example"})),
                (403, await client.get("/healthz", headers={"sec-fetch-site": "cross-site"})),
                (204, await client.options(PATH, headers=preflight)),
                (200, await client.get("/healthz", headers={"origin": SITE})),
                (204, await client.delete("/conversations/c", headers=bearer)),
            ]
        for status, answer in answers:
            assert answer.status_code == status
            check_safe(answer.headers)
        head = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        pieces = [b"X: " + b"x" * 8192 + b"\r\n"] * (HEAD_BYTES // 8192 + 1)
        for raw in (await exchange(server, b"\x16\r\n\r\n"), await exchange(server, head, *pieces)):
            first, *lines = raw.partition(b"\r\n\r\n")[0].decode().split("\r\n")
            assert first.split()[1] in {"400", "431"}
            check_safe(httpx.Headers(dict(line.split(": ", 1) for line in lines)))
