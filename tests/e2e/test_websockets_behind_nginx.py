"""WebSockets and streams through nginx with the configuration that is in `deploy`."""

import socket
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx
import pytest
from tests.support.programs import program
from tests.support.raw_socket import TEXT, RawFrame, connected, frame, head, opened
from tests.support.server import running_server
from tests.support.waiting import pause

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
KEY = "alice-0123456789abcdef"
NAME = "chat.example"
OWN = {"Host": NAME, "Origin": f"http://{NAME}", "Authorization": f"Bearer {KEY}"}
CONFIGURATION = """\
daemon off;
master_process off;
error_log stderr;
pid {folder}/nginx.pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/client;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {deployed}
}}
"""


@asynccontextmanager
async def behind_nginx(worker: str, folder: Path) -> AsyncGenerator[str]:
    """Start nginx with `deploy/proxy.conf` before one worker; yield its address."""
    path = program("nginx", variable="TEST_NGINX")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    deployed = (ROOT / "deploy" / "proxy.conf").read_text("utf-8")
    for name in ("worker-1:8000", "worker-2:8000"):
        deployed = deployed.replace(name, worker.removeprefix("http://"))
    deployed = deployed.replace("listen 8080", f"listen 127.0.0.1:{port}")
    configuration = folder / "nginx.conf"
    configuration.write_text(CONFIGURATION.format(folder=folder, deployed=deployed), "utf-8")
    command = [path, "-p", str(folder), "-e", "stderr", "-c", str(configuration)]
    async with await anyio.open_process(command, stdin=subprocess.DEVNULL) as process:
        url = f"http://127.0.0.1:{port}"
        try:
            with anyio.fail_after(20):
                async with httpx.AsyncClient(headers={"host": NAME}) as client:
                    while True:
                        try:
                            assert (await client.get(f"{url}/healthz")).status_code == 200
                            break
                        except httpx.TransportError:
                            await pause(0.05)
            yield url
        finally:
            process.terminate()


async def test_a_websocket_passes_nginx_as_it_is_deployed(tmp_path: Path) -> None:
    given = {"PASSBACK_API_KEYS": f"alice:{KEY}", "PASSBACK_ALLOWED_HOSTS": NAME}
    async with (
        running_server(module="tests.support.echo_wire", environment=given) as server,
        behind_nginx(server.url, tmp_path) as url,
        opened(url, "/keyed", OWN) as one,
    ):
        assert await one.frame() == RawFrame(TEXT, b"hello alice")
        await one.send(frame(TEXT, b"x" * 100_000))
        assert len((await one.frame()).content) == 100_005
        server.terminate()
        assert (await one.frame()).content == b"the last word"
        assert (await one.close_frame())[0] == 1012


async def test_what_is_no_websocket_is_none_behind_nginx(tmp_path: Path) -> None:
    given = {"PASSBACK_API_KEYS": f"alice:{KEY}", "PASSBACK_ALLOWED_HOSTS": NAME}
    cases = [
        (head("/keyed", {**OWN, "Origin": "https://evil.example"}), 403),
        (head("/keyed", {"Host": NAME}), 401),
        (head("/healthz", {**OWN, "Upgrade": "h2c"}), 200),
        (head("/keyed", {**OWN, "Upgrade": "h2c"}), 426),
    ]
    async with (
        running_server(module="tests.support.echo_wire", environment=given) as server,
        behind_nginx(server.url, tmp_path) as url,
    ):
        for content, status in cases:
            async with connected(url) as one:
                await one.send(content)
                assert (await one.answer())[0] == status
