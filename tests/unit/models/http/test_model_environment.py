"""The proxies and the certificates that the environment names, and their errors."""

import ssl
import traceback
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import trustme
from tests.unit.models.http.raw_service import ANSWER, OK, Proxy, RawService, answers, once, serving
from tests.unit.models.openai_chat.chat_service import (
    AB_DELTAS,
    KEY,
    client_at,
    deltas_of,
    failure_of,
)

from passback.core.errors import ConfigurationError, ModelUnavailable
from passback.models.http.transport import find_proxy
from passback.models.openai_chat import OpenAIChat

pytestmark = pytest.mark.anyio

PASSWORD = "very:secret"

# httpx-aiohttp hands the password of a proxy to aiohttp in a way that aiohttp wants to give up
with_password = pytest.mark.filterwarnings(
    "ignore:.*(BasicAuth|proxy_auth).* is deprecated:DeprecationWarning"
)


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the proxies and certificates of the machine that runs the tests."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def bundle(authority: trustme.CA, tmp_path: Path) -> Path:
    """Write a file with the authority's certificate."""
    path = tmp_path / "authorities.pem"
    authority.cert_pem.write_to_path(path)
    return path


def certified(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


@asynccontextmanager
async def proxied(
    service: RawService, password: str = ""
) -> AsyncGenerator[tuple[Proxy, RawService]]:
    proxy = Proxy(service, password)
    async with serving(proxy.handle) as listening:
        yield proxy, listening


# ---------------------------------------------------------------- proxies
@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_a_service_is_asked_through_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async with serving(answers(ANSWER)) as service, proxied(service) as (proxy, listening):
        monkeypatch.setenv(name, f"http://127.0.0.1:{listening.port}")
        async with client_at("http://model.test/v1") as client:
            assert [await deltas_of(client) for _ in range(2)] == [AB_DELTAS] * 2
    # one connection, whose later requests the proxy passes on unread
    assert [head.split(b"\r\n")[0] for head in proxy.heads] == [
        b"POST http://model.test/v1/chat/completions HTTP/1.1"
    ]


@with_password
async def test_a_service_with_tls_is_reached_through_a_tunnel(
    monkeypatch: pytest.MonkeyPatch, authority: trustme.CA, bundle: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    async with (
        serving(answers(ANSWER), tls=certified(authority, "model.test")) as service,
        proxied(service, PASSWORD) as (proxy, listening),
    ):
        monkeypatch.setenv("HTTPS_PROXY", f"http://very:secret@127.0.0.1:{listening.port}")
        async with client_at("https://model.test/v1?key=secret") as client:
            assert await deltas_of(client) == AB_DELTAS
    [head] = proxy.heads
    assert head.startswith(b"CONNECT model.test:443 HTTP/1.1\r\n")
    assert KEY.encode() not in head


async def test_a_service_on_this_machine_is_asked_directly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with serving(answers(ANSWER)) as service, client_at(service.url()) as client:
        assert await deltas_of(client) == AB_DELTAS


@pytest.mark.parametrize(
    ("url", "no_proxy", "direct"),
    [
        ("http://model.test/v1", "model.test", True),
        ("http://model.test:8000/v1", "x.test,.test", True),
        ("http://model.test/v1", "*", True),
        ("http://model.test/v1", "x.test", False),
        ("http://localhost:11434/v1", "", True),
        ("http://127.9.9.9/v1", "", True),
        ("http://[::1]:11434/v1", "", True),
        ("http://localhost.test/v1", "", False),
    ],
)
def test_a_proxy_is_not_used_for_this_machine_or_hosts_in_no_proxy(
    monkeypatch: pytest.MonkeyPatch, url: str, no_proxy: str, direct: bool
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", no_proxy)
    assert (find_proxy(httpx.URL(url)) is None) is direct


@with_password
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("trouble", ["password", "gone"])
async def test_a_failing_proxy_is_reported_without_its_password(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, scheme: str, trouble: str
) -> None:
    caplog.set_level("DEBUG")
    async with (
        serving(answers(ANSWER)) as service,
        proxied(service, "other:password") as (_, listening),
    ):
        port = listening.port if trouble == "password" else 9
        monkeypatch.setenv(f"{scheme.upper()}_PROXY", f"http://{PASSWORD}@127.0.0.1:{port}")
        async with client_at(f"{scheme}://model.test/v1?key={KEY}") as client:
            _, failure = await failure_of(client)
    assert "proxy" in failure.message
    logged = caplog.text + "".join(traceback.format_exception(failure))
    assert not [secret for secret in ("very", "secret", KEY) if secret in logged]


@pytest.mark.parametrize(
    "address",
    [
        "socks5://u:hidden@127.0.0.1:9",
        "socks9://u:hidden@x",
        "http://u:hidden@",
        "http://u:hidden@[::1",
        f"http://u:hidden@{'x' * 70}.test:1",
        "http://u:hidden\u20ac@x",
        "http://u%3A:hidden@x",
    ],
)
def test_a_malformed_proxy_is_an_error_at_start(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", address)
    with pytest.raises(ConfigurationError, match=r"^HTTPS_PROXY must look like") as raised:
        OpenAIChat("gpt-test", base_url="https://model.test/v1")
    assert "NO_PROXY" in raised.value.message
    assert "hidden" not in "".join(traceback.format_exception(raised.value))


def test_a_proxy_may_be_given_without_its_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "proxy.test:3128")
    proxy = find_proxy(httpx.URL("https://model.test/v1"))
    assert proxy is not None
    assert str(proxy.url) == "http://proxy.test:3128"
    assert find_proxy(httpx.URL("http://model.test/v1")) is None


# ---------------------------------------------------------------- certificates
async def test_certificates_of_the_environment_are_trusted(
    monkeypatch: pytest.MonkeyPatch, authority: trustme.CA, bundle: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    async with (
        serving(answers(ANSWER), tls=certified(authority, "localhost")) as service,
        client_at(service.url("https", "localhost")) as client,
    ):
        assert [await deltas_of(client) for _ in range(2)] == [AB_DELTAS] * 2
        assert service.connections == 1


@pytest.mark.parametrize("wrong", ["host", "authority"])
async def test_a_service_with_an_invalid_certificate_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, authority: trustme.CA, bundle: Path, wrong: str
) -> None:
    if wrong == "host":
        monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    tls = certified(authority, "elsewhere" if wrong == "host" else "localhost")
    async with (
        serving(answers(ANSWER), tls=tls) as service,
        client_at(service.url("https", "localhost")) as client,
    ):
        _, failure = await failure_of(client)
    assert type(failure) is ModelUnavailable
    assert str(failure.__cause__) == "ClientConnectorCertificateError"


@pytest.mark.parametrize("content", [None, b"no certificate"], ids=["no file", "no certificate"])
def test_unreadable_certificates_are_an_error_at_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "authorities.pem"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    with pytest.raises(ConfigurationError, match="SSL_CERT_FILE"):
        OpenAIChat("gpt-test", base_url="https://model.test/v1")


# ---------------------------------------------------------------- secrets
async def test_a_key_in_the_query_is_never_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with (
        serving(once(OK + b"no header\r\n\r\n")) as service,
        client_at(f"{service.url()}?key={KEY}") as client,
    ):
        _, failure = await failure_of(client)
    logged = caplog.text + "".join(traceback.format_exception(failure)) + repr(failure.__cause__)
    assert KEY not in logged
    assert "error=HttpProcessingError" in caplog.text
