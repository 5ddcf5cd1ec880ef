"""Foreign hosts, foreign pages and missing keys are stopped at the gate."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from tests.support.asgi_client import Answer, ask

from passback.core.errors import NotFound, Unauthenticated
from passback.core.messages import OwnerId
from passback.hotpath.sending import SEND_NOW, send_now
from passback.http.answers import known_owner, owner_of
from passback.http.gate import Access, Gate, resolve_key
from passback.http.routing import Endpoint
from passback.http.site import build_site
from passback.http.wires import Wire

pytestmark = pytest.mark.anyio

KEYS = {"the-key-of-alice": OwnerId("alice"), "the-key-of-bob": OwnerId("bob")}
SITE = "https://app.example.com"


def _app(access: Access) -> ASGIApp:
    async def answer_owner(request: Request) -> Response:
        return Response(owner_of(request))

    async def missing(request: Request) -> Response:
        raise NotFound("not here")

    methods = ["GET", "POST"]
    routes = [
        Endpoint("/", answer_owner, methods=methods),
        Endpoint("/open", answer_owner, methods=methods),
        Endpoint("/missing", missing, methods=["GET"]),
    ]
    return build_site([Wire(routes, public=frozenset({"/open"}))], access)


async def _get(access: Access, path: str = "/", **headers: str) -> Answer:
    return await ask(_app(access), "GET", path, headers=headers)


# ---------------------------------------------------------------- host
LOOPBACK_HOSTS = [
    "127.0.0.1",
    "127.0.0.1:8000",
    "127.8.9.10",
    "localhost",
    "localhost:1",
    "LOCALHOST:8000",
    "[::1]",
    "[::1]:8000",
]
ADDRESSES = ["192.168.1.7:8000", "10.0.0.1", "[fe80::1]:80", "203.0.113.9"]
FOREIGN_HOSTS = [
    "",
    "evil.example",
    "evil.example:8000",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "evil.example#127.0.0.1",
    "evil.example/127.0.0.1",
    "user@127.0.0.1",
    "127.0.0.1:port",
    "127.0.0.1:99999",
    "[::1",
    "::1",
    "0x7f.1",
    "127.1",
    "127.1:8000",
    "0177.0.0.1",
    "2130706433",
    "127.0.0.1.",
    "127.0.0.1:8000:8000",
    "localhost.",
    "localhost\t",
    "agents.example.com.",
]


@pytest.mark.parametrize("host", LOOPBACK_HOSTS)
async def test_loopback_is_always_served(host: str) -> None:
    assert (await _get(Access(), host=host)).status == 200


@pytest.mark.promise("P13")
@pytest.mark.parametrize("host", FOREIGN_HOSTS)
@pytest.mark.parametrize("loopback_only", [True, False])
async def test_a_foreign_host_is_refused(host: str, loopback_only: bool) -> None:
    access = Access(hosts=frozenset({"agents.example.com"}), loopback_only=loopback_only)
    answer = await _get(access, host=host)
    assert (answer.status, answer.code) == (421, "foreign_host")


@pytest.mark.parametrize("host", ADDRESSES)
@pytest.mark.parametrize(("loopback_only", "status"), [(True, 421), (False, 200)])
async def test_an_address_is_a_host_where_the_server_is_bound_to_more_than_loopback(
    host: str, loopback_only: bool, status: int
) -> None:
    assert (await _get(Access(loopback_only=loopback_only), host=host)).status == status


@pytest.mark.parametrize("host", ["agents.example.com", "Agents.Example.com:8443", "[fe80::2]"])
async def test_a_configured_host_is_served(host: str) -> None:
    access = Access(hosts=frozenset({"agents.example.com", "[fe80::2]"}))
    assert (await _get(access, host=host)).status == 200


async def test_two_hosts_are_refused() -> None:
    headers = [("host", "localhost"), ("host", "evil.example")]
    assert (await ask(_app(Access()), "GET", "/", headers=headers)).status == 421


# ---------------------------------------------------------------- origin
@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://127.0.0.1:8000", "127.0.0.1:8000"),
        ("http://localhost", "localhost:80"),
        ("https://localhost", "localhost"),
        ("https://localhost:443", "localhost"),
        ("http://[::1]:8000", "[::1]:8000"),
    ],
)
async def test_pages_of_this_server_are_served(origin: str, host: str) -> None:
    assert (await _get(Access(), host=host, origin=origin)).status == 200


@pytest.mark.promise("P13")
@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://evil.example",
        "http://127.0.0.1:8001",
        "http://127.0.0.1:8000.evil.example",
        "http://localhost:8000",
        "chrome-extension://127.0.0.1:8000",
        "127.0.0.1:8000",
        "https://app.example.com.evil.example",
        "http://app.example.com",
        "https://app.example.com:444",
        "https://APP.example.com",
        "https://user@app.example.com",
        "https://app.example.com/",
        "http://127.0.0.1:8000@evil.example",
    ],
)
async def test_a_page_of_another_origin_is_refused_without_cors_headers(origin: str) -> None:
    access = Access(origins=frozenset({SITE}))
    headers = {"host": "127.0.0.1:8000", "origin": origin}
    preflight = headers | {"access-control-request-method": "POST"}
    for method, given in (("GET", headers), ("POST", headers), ("OPTIONS", preflight)):
        answer = await ask(_app(access), method, "/", headers=given)
        assert (answer.status, answer.code) == (403, "foreign_origin")
        assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_one_foreign_origin_of_two_is_enough() -> None:
    headers = [("origin", SITE), ("origin", "http://evil.example")]
    access = Access(origins=frozenset({SITE}))
    assert (await ask(_app(access), "GET", "/", headers=headers)).status == 403


# ---------------------------------------------------------------- Sec-Fetch headers
NAVIGATION = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("site", ["same-origin", "none", "", "unheard-of"])
async def test_requests_that_are_not_cross_site_are_served(method: str, site: str) -> None:
    answer = await ask(_app(Access()), method, "/", headers={"sec-fetch-site": site})
    assert answer.status == 200


@pytest.mark.promise("P13")
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("/", {}),
        ("/", NAVIGATION),
        ("/nowhere", NAVIGATION),
        ("/open", {"sec-fetch-mode": "no-cors", "sec-fetch-dest": "object"}),
        ("/open", {"sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}),
        ("/open", {"sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"}),
        ("/", {"origin": "http://127.0.0.1:8000"}),
    ],
)
async def test_requests_that_another_site_causes_are_refused(
    path: str, more: dict[str, str], site: str
) -> None:
    access = Access(origins=frozenset({SITE}), keys={})
    answer = await _get(access, path, **{"sec-fetch-site": site, **more})
    assert (answer.status, answer.code) == (403, "foreign_origin")


async def test_one_foreign_site_of_two_is_enough() -> None:
    headers = [("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")]
    assert (await ask(_app(Access()), "GET", "/", headers=headers)).status == 403


async def test_a_link_on_another_site_may_lead_to_a_public_page() -> None:
    answer = await _get(
        Access(keys=KEYS), "/open", **{"sec-fetch-site": "cross-site", **NAVIGATION}
    )
    assert answer.status == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_configured_page_may_send_cross_site_requests(site: str) -> None:
    headers = {"origin": SITE, "sec-fetch-site": site, "sec-fetch-mode": "cors"}
    assert (await _get(Access(origins=frozenset({SITE})), **headers)).status == 200
    asked = {**headers, "access-control-request-method": "POST"}
    answer = await ask(_app(Access(origins=frozenset({SITE}))), "OPTIONS", "/", headers=asked)
    assert answer.status == 204


# ---------------------------------------------------------------- pages of configured origins
SHARING = Access(origins=frozenset({SITE}), keys=KEYS)


@pytest.mark.parametrize(
    ("path", "key", "status"),
    [("/", "the-key-of-bob", 200), ("/", "wrong", 401), ("/missing", "the-key-of-bob", 404)],
)
async def test_a_configured_page_may_read_every_answer(path: str, key: str, status: int) -> None:
    answer = await _get(SHARING, path, origin=SITE, authorization=f"Bearer {key}")
    assert answer.status == status
    assert answer.headers["access-control-allow-origin"] == SITE
    assert answer.headers["vary"] == "origin"
    exposed = answer.headers["access-control-expose-headers"].split(", ")
    assert {"X-Conversation-Id", "X-Run-Id", "X-Request-Id", "Retry-After"} <= set(exposed)
    assert {f"X-Budget-Left-{kind}" for kind in ("Tokens", "Seconds", "Cost")} <= set(exposed)
    assert "access-control-allow-credentials" not in answer.headers


async def test_a_preflight_of_a_configured_page_needs_no_key() -> None:
    asked = {"origin": SITE, "access-control-request-method": "POST", "x-request-id": "r"}
    answer = await ask(_app(SHARING), "OPTIONS", "/", headers=asked)
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == SITE
    assert answer.headers["access-control-allow-methods"] == "GET, HEAD, POST"
    allowed = answer.headers["access-control-allow-headers"].split(", ")
    assert {"Authorization", "Content-Type", "Last-Event-ID", "Idempotency-Key"} <= set(allowed)
    assert answer.headers["x-request-id"] == "r"


async def test_a_preflight_of_another_page_is_refused() -> None:
    asked = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    assert (await ask(_app(SHARING), "OPTIONS", "/", headers=asked)).status == 403


async def test_without_an_origin_there_are_no_cross_origin_headers() -> None:
    answer = await _get(SHARING, authorization="Bearer the-key-of-bob")
    assert not [name for name in answer.headers if name.startswith("access-control")]


# ---------------------------------------------------------------- pages of this machine
LOOPBACK_PAGES = Access(loopback_pages=True)
PROXIED = Access(hosts=frozenset({"agents.example.com"}), loopback_pages=True)


@pytest.mark.parametrize(
    ("origin", "host", "site"),
    [
        ("http://localhost:5173", "127.0.0.1:8000", "cross-site"),
        ("http://localhost:5173", "localhost:8000", "same-site"),
        ("http://127.0.0.1:3000", "localhost:8000", "cross-site"),
        ("http://[::1]:3000", "[::1]:8000", "same-site"),
        ("https://localhost", "127.8.9.10:8000", "cross-site"),
        ("http://127.0.0.1:8001", "127.0.0.1:8000", "same-site"),
    ],
)
async def test_a_page_of_this_machine_may_call_and_read(origin: str, host: str, site: str) -> None:
    headers = {"host": host, "origin": origin, "sec-fetch-site": site}
    asked = headers | {"access-control-request-method": "POST"}
    for method, given, status in (
        ("GET", headers, 200),
        ("POST", headers, 200),
        ("OPTIONS", asked, 204),
    ):
        answer = await ask(_app(LOOPBACK_PAGES), method, "/", headers=given)
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (status, origin)
        assert answer.headers["vary"] == "origin"
    refused = await ask(_app(Access()), "GET", "/", headers=headers)
    assert (refused.status, refused.code) == (403, "foreign_origin")


@pytest.mark.promise("P13")
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "null"},
        {"origin": "http://localhost.evil.example"},
        {"origin": "http://evil.example:5173"},
        {"origin": "http://127.0.0.1.nip.io"},
        {"origin": "http://127.0.0.1:5173@evil.example"},
        {"origin": "http://user@localhost:5173"},
        {"origin": "http://localhost:5173/"},
        {"origin": "http://localhost:5173\t"},
        {"origin": "http://localhost:523456"},
        {"origin": "http://LOCALHOST:5173"},
        {"origin": "http://localhost.:5173"},
        {"origin": "http://0.0.0.0:5173"},
        {"origin": "http://2130706433"},
        {"origin": "http://192.168.1.7:5173"},
        {"origin": "file://localhost"},
        {"origin": "chrome-extension://localhost"},
        # without an Origin: the page loads it, but cannot read it
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"},
    ],
)
async def test_a_page_that_looks_local_is_refused(headers: dict[str, str]) -> None:
    answer = await _get(LOOPBACK_PAGES, **headers)
    assert (answer.status, answer.code) == (403, "foreign_origin")
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.promise("P13")
@pytest.mark.parametrize(
    ("hosts", "status"),
    [
        (["agents.example.com"], 403),
        (["agents.example.com", "localhost"], 421),
        (["localhost.evil.example"], 421),
        (["localhost" + "x" * 600], 421),
    ],
)
async def test_loopback_pages_are_foreign_to_a_server_with_another_host(
    hosts: list[str], status: int
) -> None:
    headers = [("origin", "http://localhost:5173"), *(("host", host) for host in hosts)]
    answer = await ask(_app(PROXIED), "GET", "/", headers=headers)
    assert answer.status == status
    assert "access-control-allow-origin" not in answer.headers


async def test_a_page_of_this_server_is_not_cross_origin() -> None:
    answer = await _get(LOOPBACK_PAGES, host="localhost:8000", origin="http://localhost:8000")
    assert (answer.status, "access-control-allow-origin" in answer.headers) == (200, False)


# ---------------------------------------------------------------- the operator's log
def _logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    gate = [record for record in caplog.records if record.name == "passback.http.gate"]
    assert {record.levelname for record in gate} <= {"WARNING"}
    return [record.getMessage() for record in gate]


async def test_a_page_without_an_origin_is_told_what_to_do() -> None:
    answer = await _get(Access(), origin="null")
    assert (answer.status, answer.code) == (403, "foreign_origin")
    assert answer.json["message"].startswith("the page has no origin (a file, or a sandboxed")


@pytest.mark.parametrize(
    ("headers", "setting", "line"),
    [
        (
            {"origin": "http://app.example:5173"},
            "PASSBACK_ALLOWED_ORIGINS",
            (
                "refused the origin http://app.example:5173: to allow it, "
                "list it in PASSBACK_ALLOWED_ORIGINS"
            ),
        ),
        (
            {"host": "Chat.Example:8000"},
            "PASSBACK_ALLOWED_HOSTS",
            "refused the host chat.example: to allow it, list it in PASSBACK_ALLOWED_HOSTS",
        ),
        (
            {"host": "[2001:db8::1]:8000"},
            "PASSBACK_ALLOWED_HOSTS",
            "refused the host [2001:db8::1]: to allow it, list it in PASSBACK_ALLOWED_HOSTS",
        ),
        *(
            (
                {"origin": origin},
                "PASSBACK_ALLOWED_ORIGINS",
                "refused a request: PASSBACK_ALLOWED_ORIGINS can list no origin of it",
            )
            for origin in ("null", "http://a\x1b[2J.example", "http://me:secret@a.example")
        ),
        (
            {"sec-fetch-site": "cross-site"},
            "PASSBACK_ALLOWED_ORIGINS",
            "refused a request: PASSBACK_ALLOWED_ORIGINS can list no origin of it",
        ),
        *(
            (
                {"host": host},
                "PASSBACK_ALLOWED_HOSTS",
                "refused a request: PASSBACK_ALLOWED_HOSTS can list no host of it",
            )
            for host in ("a b.example", "me:secret@a.example", "a" * 300, "a" * 600, "\xe4.example")
        ),
    ],
)
async def test_a_refused_host_or_origin_is_named_once_with_the_setting_that_allows_it(
    headers: dict[str, str], setting: str, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = _app(Access())
    for _ in range(3):
        answer = await ask(app, "GET", "/", headers=headers)
        assert setting in answer.json["message"]
    assert _logged(caplog) == [line]


async def test_refused_hosts_and_origins_are_logged_within_a_bound(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = _app(Access())
    for number in range(103):
        await ask(app, "GET", "/", headers={"origin": f"http://a{number}.example"})
    await ask(app, "GET", "/", headers={"host": "chat.example"})
    *named, last, host = _logged(caplog)
    assert (len(named), named[-1].split()[3]) == (100, "http://a99.example:")
    assert last == (
        "refused more than 100 different origins: no more are named here; "
        "PASSBACK_LOG_LEVEL=info logs every request"
    )
    assert "chat.example" in host


# ---------------------------------------------------------------- keys
@pytest.mark.parametrize("key", [None, "Bearer x", "Basic x"])
async def test_without_configured_keys_everyone_is_anonymous(key: str | None) -> None:
    headers = {"authorization": key} if key else {}
    assert (await _get(Access(), **headers)).body == b"anonymous"


@pytest.mark.promise("P13")
@pytest.mark.parametrize(
    ("given", "owner"), [("Bearer the-key-of-alice", b"alice"), ("bearer  the-key-of-bob ", b"bob")]
)
async def test_a_key_gives_the_owner_of_a_request(given: str, owner: bytes) -> None:
    assert (await _get(Access(keys=KEYS), authorization=given)).body == owner


@pytest.mark.promise("P13")
@pytest.mark.parametrize(
    "given",
    [None, "", "Bearer", "Bearer ", "Bearer wrong", "Bearer the-key-of-alic", "the-key-of-alice"],
)
async def test_without_a_valid_key_every_path_is_a_401(given: str | None) -> None:
    headers = {"authorization": given} if given is not None else {}
    for path in ("/", "/missing", "/nowhere"):
        answer = await _get(Access(keys=KEYS), path, **headers)
        assert (answer.status, answer.code) == (401, "unauthenticated")


@pytest.mark.promise("P13")
@pytest.mark.parametrize(
    "other", ["Bearer the-key-of-alice", "Bearer the-key-of-bob", "Basic x", ""]
)
@pytest.mark.parametrize("is_first", [True, False])
async def test_two_credentials_are_refused(other: str, is_first: bool) -> None:
    given = ["Bearer the-key-of-alice", other]
    headers = [("authorization", each) for each in (given if is_first else reversed(given))]
    for path in ("/", "/nowhere"):
        answer = await ask(_app(Access(keys=KEYS)), "GET", path, headers=headers)
        assert (answer.status, answer.code) == (401, "unauthenticated")
    assert (await ask(_app(Access()), "GET", "/", headers=headers)).body == b"anonymous"


@pytest.mark.parametrize(("method", "status"), [("GET", 200), ("HEAD", 200), ("POST", 401)])
async def test_a_public_path_is_open_for_reading_only(method: str, status: int) -> None:
    assert (await ask(_app(Access(keys=KEYS)), method, "/open")).status == status


async def test_a_public_path_is_not_open_to_a_foreign_host() -> None:
    assert (await _get(Access(keys=KEYS), "/open", host="evil.example")).status == 421


# ---------------------------------------------------------------- other scopes
async def test_the_lifespan_passes_the_gate() -> None:
    phases: list[str] = []

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        phases.append("started")
        yield
        phases.append("stopped")

    asked: list[Message] = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent: list[str] = []

    async def receive() -> Message:
        return asked.pop(0)

    async def send(message: Message) -> None:
        sent.append(message["type"])

    await build_site([], Access(), lifespan)({"type": "lifespan"}, receive, send)
    assert phases == ["started", "stopped"]
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_a_websocket_is_closed() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    await _app(Access())({"type": "websocket", "path": "/", "headers": []}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.promise("P13")
@pytest.mark.parametrize(
    ("path", "raw", "headers", "status", "owner"),
    [
        ("/late/", None, {}, 200, b"None"),
        ("/late/x", None, {}, 200, b"None"),
        ("/late/x", None, {"authorization": "Bearer the-key-of-bob"}, 200, b"bob"),
        ("/late/x", None, {"authorization": "Bearer wrong"}, 401, b""),
        ("/late/x", None, {"authorization": ""}, 401, b""),
        ("/late/x", None, {"origin": "https://evil.example"}, 403, b""),
        ("/late/x", None, {"host": "evil.example"}, 421, b""),
        ("/once", None, {}, 200, b"None"),
        ("/once/x", None, {}, 401, b""),
        ("/oncer", None, {}, 401, b""),
        ("/late", None, {}, 401, b""),
        ("/late/", b"/%6Cate/", {}, 401, b""),
        ("/other", b"/late/x", {}, 200, b"None"),
    ],
)
async def test_keys_may_come_later_below_the_paths_of_a_wire(
    path: str, raw: bytes | None, headers: dict[str, str], status: int, owner: bytes
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse(str(known_owner(scope)))(scope, receive, send)

    async def sent_as(scope: Scope, receive: Receive, send: Send) -> None:
        await gate({**scope, "raw_path": raw or path.encode()}, receive, send)

    gate = Gate(app, Access(keys=KEYS), late_keys=frozenset({"/late/", "/once"}))
    answer = await ask(sent_as, "POST", path, headers=headers)
    assert (answer.status, answer.body if status == 200 else b"") == (status, owner)


@pytest.mark.promise("P13")
@pytest.mark.parametrize("key", ["", "wrong", "the-key-of-alic", "\ud800", "the-key-of-alice "])
def test_a_late_key_has_to_be_one_of_those_configured(key: str) -> None:
    assert resolve_key(Access(keys=KEYS), "the-key-of-alice") == "alice"
    assert resolve_key(Access(), key) == "anonymous"
    with pytest.raises(Unauthenticated) as refused:
        resolve_key(Access(keys=KEYS), key)
    assert refused.value.message == "a valid API key is needed"


@pytest.mark.parametrize("raises", [False, True])
async def test_a_request_that_is_over_does_not_keep_the_servers_send(raises: bool) -> None:
    given = dict[str, object]({SEND_NOW: object(), "another": 1})
    seen: list[object] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(send_now(scope))
        if raises:
            raise RuntimeError

    async def receive() -> Message:
        raise AssertionError("nothing is asked for")

    async def send(message: Message) -> None:
        raise AssertionError("nothing is sent")

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"localhost")]}
    with pytest.raises(RuntimeError) if raises else nullcontext():
        await Gate(app, Access())(scope | {"extensions": given}, receive, send)
    assert len(seen) == 1
    assert seen != [None]
    assert given == {"another": 1}
