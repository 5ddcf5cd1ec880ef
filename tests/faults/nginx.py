"""A real nginx in front of a server, with its defaults for buffering and its gzip on."""

import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import anyio
from anyio.lowlevel import checkpoint
from tests.support.programs import program
from tests.support.redis_server import free_port

START_SECONDS = 10

# one process in the foreground that writes only into its folder; what is left out has nginx's own default
CONFIGURATION = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    gzip on;
    gzip_types *;
    gzip_proxied any;
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass {target};
        }}
    }}
}}
"""


@asynccontextmanager
async def nginx(target: str, folder: Path) -> AsyncGenerator[str]:
    """Give the URL under which the server at `target` is reached through nginx."""
    port = free_port()
    configuration = folder / "nginx.conf"
    configuration.write_text(CONFIGURATION.format(folder=folder, port=port, target=target))
    path = program("nginx", variable="TEST_NGINX")
    command = [path, "-e", str(folder / "error.log"), "-p", str(folder), "-c", str(configuration)]
    process = await anyio.open_process(command, stdin=subprocess.DEVNULL, stdout=None, stderr=None)
    async with process:
        try:
            await _listening(port)
            yield f"http://{urlsplit(target).hostname}:{port}"
        finally:
            process.kill()


async def _listening(port: int) -> None:
    with anyio.fail_after(START_SECONDS):
        while True:
            try:
                async with await anyio.connect_tcp("127.0.0.1", port):
                    return
            except OSError:
                await checkpoint()
