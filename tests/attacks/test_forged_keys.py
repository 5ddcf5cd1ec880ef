"""Nothing opens without a key, however the key or the path is written, and wherever it is put."""

import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
from tests.attacks.raw import HOST, answers_to, connected
from tests.support import ai_sdk
from tests.support.server import Server, running_server
from tests.support.waiting import pause
from tests.support.wire import PATH, Client, check_refusal, client_of

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P13")]

AS_A_USER_DOES = (sys.executable, "-m", "passback", "serve")
SECONDS = 30
KEY = "the-key-of-alice-0123456789"
FORMS = {
    "no key": b"",
    "an empty header": b"Authorization:\r\n",
    "no scheme": b"Authorization: " + KEY.encode() + b"\r\n",
    "the scheme alone": b"Authorization: Bearer\r\n",
    "another key": b"Authorization: Bearer the-key-of-alice-0123456788\r\n",
    "the first half": b"Authorization: Bearer the-key-of-al\r\n",
    "one character more": b"Authorization: Bearer " + KEY.encode() + b"x\r\n",
    "in capital letters": b"Authorization: Bearer " + KEY.upper().encode() + b"\r\n",
    "in quotes": b'Authorization: Bearer "' + KEY.encode() + b'"\r\n',
    "with its owner": b"Authorization: Bearer alice:" + KEY.encode() + b"\r\n",
    "twice, with a comma": b"Authorization: Bearer x, Bearer " + KEY.encode() + b"\r\n",
    "behind a tab": b"Authorization: Bearer\t" + KEY.encode() + b"\r\n",
    "behind NUL": b"Authorization: Bearer \x00" + KEY.encode() + b"\r\n",
    "before NUL": b"Authorization: Bearer " + KEY.encode() + b"\x00\r\n",
    "on a folded line": b"Authorization: Bearer\r\n " + KEY.encode() + b"\r\n",
    "percent-encoded": b"Authorization: Bearer %74he-key-of-alice-0123456789\r\n",
    "a wildcard": b"Authorization: Bearer *\r\n",
    "another scheme": b"Authorization: Token " + KEY.encode() + b"\r\n",
    "basic": b"Authorization: Basic YWxpY2U6dGhlLWtleS1vZi1hbGljZS0wMTIzNDU2Nzg5\r\n",
    "a header that only looks like it": b"Authorization_: Bearer " + KEY.encode() + b"\r\n",
    "a blank behind the header's name": b"Authorization : Bearer " + KEY.encode() + b"\r\n",
    "a cookie": b"Cookie: authorization=Bearer "
    + KEY.encode()
    + b"; key="
    + KEY.encode()
    + b"\r\n",
    "another header for keys": b"X-Api-Key: " + KEY.encode() + b"\r\n",
    "the proxy's header": b"Proxy-Authorization: Bearer " + KEY.encode() + b"\r\n",
    "a name that a proxy vouches for": b"X-Forwarded-User: alice\r\nX-Forwarded-For: 127.0.0.1\r\n",
    "a rewritten address": b"X-Original-URL: /healthz\r\nX-Rewrite-URL: /healthz\r\n",
}
"""Forms of the header, and what is put in its place."""

PATHS = (
    *("/tool-calls?status=owed", "/agents", "/commands", "/openapi.json", "/conversations/c"),
    *("/conversations", "/conversations?limit=1"),
    *("/conversations/c/messages", "/conversations/c/stream", "/process/c/stream", "/nowhere"),
    *("/ag-ui/threads/c/stream", "/ag-ui", "/ag-ui/a"),
    *("//tool-calls", "/./tool-calls", "/x/../tool-calls", "/healthz/../tool-calls", "/TOOL-CALLS"),
    *("/%74ool-calls", "/tool%2Dcalls", "/tool-calls/", "/tool-calls%00", "/tool-calls;a=b"),
    *("/tool-calls%20", "/tool-calls.json", "/tool-calls%2e", "/tool-calls%3Fstatus=owed"),
    *("/healthz%2F..%2Ftool-calls", "/healthz;/../tool-calls", "/healthz/tool-calls", "/healthz/"),
    *("//healthz/tool-calls", "/%2e%2e/tool-calls", "/..%2ftool-calls", "/..%5ctool-calls"),
    *("/.env", "/.git/config", "/js/../../settings.py", "/js/%2e%2e/%2e%2e/settings.py"),
    *("/index.html/../tool-calls", "/%2e", "/*", "http://127.0.0.1/tool-calls"),
    *("/tool-calls?access_token=" + KEY, "/tool-calls?key=" + KEY, "/tool-calls#/healthz"),
    *("/process?session_id=c", "/v1/aibot/bots/a/send-message", "/conversations/c/cancel"),
)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
OVERRIDES = ("X-HTTP-Method-Override: GET", "X-HTTP-Method: GET", "X-Method-Override: GET")


@pytest.fixture(scope="module")
async def server() -> AsyncGenerator[Server]:
    keys = {"PASSBACK_API_KEYS": f"alice:{KEY}"}
    async with running_server("--model", "demo:fast", environment=keys) as server:
        yield server


@pytest.fixture(scope="module")
async def alice(server: Server) -> AsyncGenerator[Client]:
    async with client_of(server.url, key=KEY) as client:
        yield client


def request(method: str, path: str, fields: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\n".encode() + HOST
    return head + fields + b"Content-Length: 0\r\nConnection: close\r\n\r\n"


# ---------------------------------------------------------------- the key
@pytest.mark.parametrize("fields", FORMS.values(), ids=FORMS)
async def test_a_key_in_another_form_or_place_is_none(server: Server, fields: bytes) -> None:
    for path in ("/tool-calls?status=owed", f"/tool-calls?status=owed&token={KEY}"):
        [answer] = await answers_to(server.url, request("GET", path, fields))
        assert answer.status in {400, 401}
        error = json.loads(answer.body)
        assert error["code"] in {"bad_request", "unauthenticated"}
        assert KEY not in str(error)
        if answer.status == 401:
            assert answer.headers["www-authenticate"] == "Bearer"


async def test_the_key_itself_opens(server: Server, alice: Client) -> None:
    """The requests of the attacks are right but for the key."""
    for fields in (b"Bearer " + KEY.encode(), b"bearer  " + KEY.encode() + b" "):
        content = request("GET", "/tool-calls?status=owed", b"Authorization: " + fields + b"\r\n")
        [answer] = await answers_to(server.url, content)
        assert answer.status == 200
    assert (await alice.http.get("/tool-calls?status=owed")).status_code == 200


# ---------------------------------------------------------------- paths and methods
@pytest.mark.parametrize("path", PATHS)
async def test_without_a_key_no_spelling_of_a_path_leads_past_the_gate(
    server: Server, path: str
) -> None:
    for method in METHODS:
        async with connected(server.url) as connection:
            await connection.send(request(method, path))
            answer = await connection.response(has_body=method != "HEAD")
            assert answer is not None
            assert answer.status in {400, 401}, method
            assert await connection.rest() == []


@pytest.mark.parametrize("override", OVERRIDES)
async def test_a_method_in_a_header_changes_nothing(server: Server, override: str) -> None:
    fields = f"{override}\r\n".encode()
    for path in ("/healthz", "/readyz", "/"):
        [answer] = await answers_to(server.url, request("POST", path, fields))
        assert answer.status == 401
    [answer] = await answers_to(server.url, request("POST", "/tool-calls", fields))
    assert answer.status == 401


async def test_open_without_a_key_are_the_page_and_the_checks_of_health(
    server: Server, alice: Client
) -> None:
    document = (await alice.http.get("/openapi.json")).json()
    async with client_of(server.url) as nobody:
        opened: set[str] = set()
        for path in document["paths"]:
            answer = await nobody.http.get(path.replace("{", "").replace("}", ""))
            if answer.status_code != 401:
                opened.add(path)
                continue
            if path.startswith(ai_sdk.API):  # a text for people
                code = answer.headers["x-error-code"]
                assert (answer.status_code, code) == (401, "unauthenticated")
            elif path.startswith(("/v1/responses", "/v1/models")):
                error = answer.json()["error"]
                assert (answer.status_code, error["code"]) == (401, "invalid_api_key")
            elif path.startswith("/api/"):  # with the form of errors of its protocol
                assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
            else:
                check_refusal(answer, 401, "unauthenticated")
    assert opened == {"/", "/healthz", "/readyz", "/api/health", "/api/version"}


# ---------------------------------------------------------------- keys that are shown nowhere
async def test_keys_are_in_no_argument_no_document_and_no_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    store = f"sqlite:///{tmp_path}/passback.db"
    environment = {
        "PASSBACK_API_KEYS": f"alice:{KEY}",
        "PASSBACK_MODEL_API_KEY": "the-key-of-the-model",
        "PASSBACK_LOG_LEVEL": "debug",
    }
    service = ("--model", "openai:mock", "--model-base-url", "http://127.0.0.1:9/v1")
    flags = ("--store", store, "--workers", "2", *service)
    with log.open("wb") as stderr:
        async with (
            running_server(
                *flags, environment=environment, stderr=stderr, command=AS_A_USER_DOES
            ) as server,
            client_of(server.url, key=KEY) as alice,
        ):
            with anyio.fail_after(SECONDS):
                while len(family := _family(server.process.pid)) < 3:
                    await pause(0.05)
            texts = [_arguments(pid) for pid in family]
            assert all("passback" in each for each in texts[:1])
            for path in ("/openapi.json", "/readyz", "/nowhere", "/", f"/tool-calls?key={KEY}x"):
                answer = await alice.http.get(path)
                texts.append(f"{answer.headers} {answer.text}".replace(f"{KEY}x", ""))
                assert "server" not in answer.headers
            wrong = await alice.http.post(
                PATH, json={}, headers={"authorization": f"Bearer {KEY}-"}
            )
            texts.append(wrong.text)
    texts.append(log.read_text())
    assert "owner=alice" in texts[-1]
    assert [each for each in texts if KEY in each or "the-key-of" in each] == []


def _family(pid: int) -> list[int]:
    """A process and those that it started."""
    folder = Path(f"/proc/{pid}/task/{pid}/children")
    return [pid, *(each for child in folder.read_text().split() for each in _family(int(child)))]


def _arguments(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
