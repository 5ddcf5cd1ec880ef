"""The image and the compose file allow nobody by default, and hold no secrets."""

import importlib
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry
from tests.support.programs import program
from tests.support.redis_server import free_port

from passback.settings import load_settings

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
COMPOSE = (ROOT / "docker-compose.yml").read_text("utf-8")
YAML = importlib.import_module("yaml")  # untyped
FILE: dict[str, Any] = YAML.safe_load(COMPOSE)


def test_neither_the_image_nor_the_compose_file_allows_everybody_by_default() -> None:
    settings = re.sub(r"^\s*#.*\n", "", DOCKERFILE, flags=re.MULTILINE)
    assert "PASSBACK_HOST=0.0.0.0" in settings
    assert "PASSBACK_ALLOW_ANONYMOUS" not in settings
    assert "PASSBACK_API_KEYS" not in settings
    for name in ("PASSBACK_ALLOW_ANONYMOUS", "PASSBACK_API_KEYS"):
        assert re.findall(rf"^ +{name}: (.*)$", COMPOSE, re.MULTILINE) == [f"${{{name}:-}}"]


# ---------------------------------------------------------------- the compose file
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
WORKERS = ("worker-1", "worker-2")


def test_nothing_keeps_capabilities_that_it_does_not_need() -> None:
    kept = {name: one.get("cap_add", []) for name, one in SERVICES.items()}
    assert kept == {
        "worker-1": [],
        "worker-2": [],
        "redis": [],
        "proxy": ["CHOWN", "SETGID", "SETUID"],
    }
    for one in SERVICES.values():
        assert one["cap_drop"] == ["ALL"]
        assert one["security_opt"] == ["no-new-privileges:true"]
    assert SERVICES["redis"]["user"] == "redis"


def test_only_the_workers_reach_redis() -> None:
    assert FILE["networks"]["store"] == {"internal": True}
    members = {name for name, one in SERVICES.items() if "store" in one["networks"]}
    assert members == {"redis", *WORKERS}
    assert SERVICES["redis"]["networks"] == ["store"]
    published = {name: one["ports"] for name, one in SERVICES.items() if "ports" in one}
    assert published == {"proxy": ["127.0.0.1:8080:8080"]}


def test_redis_needs_a_password_that_has_no_default() -> None:
    for name in WORKERS:
        store = SERVICES[name]["environment"]["PASSBACK_STORE"]
        assert re.fullmatch(r"redis://:\$\{REDIS_PASSWORD:\?[^}]+\}@redis:6379/0", store)
    assert SERVICES["redis"]["environment"] == {"REDISCLI_AUTH": "${REDIS_PASSWORD:?}"}
    # each mention requires it, none has a default
    assert COMPOSE.count("${REDIS_PASSWORD") == COMPOSE.count("${REDIS_PASSWORD:?")


@pytest.mark.redis
def test_redis_requires_its_password_and_keeps_acknowledged_writes(tmp_path: Path) -> None:
    """Run the command of the compose file with a real server on another port."""
    port = free_port()
    shell, flag, script = SERVICES["redis"]["command"]
    server = program("redis-server", variable="TEST_REDIS_SERVER")
    started = script.replace("$$", "$").replace(
        "redis-server -", f"'{server}' - --bind 127.0.0.1 --port {port}", 1
    )
    assert started.count(str(port)) == 1
    environment = {**os.environ, "REDISCLI_AUTH": "a0b1c2d3"}
    with subprocess.Popen(
        [shell, flag, started], env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL
    ) as process:
        try:
            retry = Retry(ConstantBackoff(0.05), 100, (redis.ConnectionError,))  # until it listens
            client = redis.Redis(port=port, password="a0b1c2d3", retry=retry, decode_responses=True)
            names = ("appendonly", "appendfsync", "maxmemory-policy")
            found = client.config_get("*")
            assert [found[name] for name in names] == ["yes", "always", "noeviction"]
            client.close()
            without_password = redis.Redis(port=port, retry=Retry(ConstantBackoff(0), 0))
            with pytest.raises(redis.AuthenticationError):
                without_password.ping()
            without_password.close()
            shown = Path(f"/proc/{process.pid}/cmdline")
            assert not shown.exists() or b"a0b1c2d3" not in shown.read_bytes()
        finally:
            process.terminate()
            process.wait(10)


SECRET = "ab12" * 16


def filled(text: str, given: dict[str, str]) -> str:
    """Return a value of the compose file with its variables replaced, as Compose does it."""

    def value(found: re.Match[str]) -> str:
        name, operator, other = found.groups()
        if operator == "?":
            return given[name]
        return given.get(name) or other

    return re.sub(r"\$\{(\w+):([-?])([^}]*)\}", value, text)


def test_a_worker_has_settings_where_the_tutorial_has_filled_in_two_of_them() -> None:
    tutorial = (ROOT / "docs" / "tutorials" / "online.md").read_text("utf-8")
    written = dict(re.findall(r'^echo "(\w+)=(.*)" >> \.env$', tutorial, re.MULTILINE))
    given = {
        name: value.replace("$(openssl rand -hex 32)", SECRET) for name, value in written.items()
    }
    assert set(given) == {"REDIS_PASSWORD", "PASSBACK_API_KEYS"}
    for name in WORKERS:
        environment: dict[str, str] = SERVICES[name]["environment"]
        settings = load_settings({key: filled(text, given) for key, text in environment.items()})
        keys = {"PASSBACK_API_KEYS": f"you:{SECRET}"}
        assert settings == load_settings(
            {"PASSBACK_STORE": f"redis://:{SECRET}@redis:6379/0", **keys}
        )


def test_the_agent_of_the_tutorial_replaces_that_of_the_image_in_both_workers() -> None:
    tutorial = (ROOT / "docs" / "tutorials" / "online.md").read_text("utf-8")
    [override] = re.findall(r"```yaml\n(.*?)```", tutorial, re.DOTALL)
    image = {"build": "./agent", "image": "my-agent"}
    assert YAML.safe_load(override) == {"services": dict.fromkeys(WORKERS, image)}
    [dockerfile] = re.findall(r"```dockerfile\n(.*?)```", tutorial, re.DOTALL)
    steps = dict(line.split(" ", 1) for line in dockerfile.splitlines())
    assert {SERVICES[name]["image"] for name in WORKERS} == {steps["FROM"]}
    assert steps["COPY"].split()[-1] == f"{steps['WORKDIR']}/"
    [_, source, _] = steps["COPY"].split()
    assert (ROOT / "examples" / source).exists()
    assert json.loads(steps["CMD"]) == ["serve", f"{Path(source).stem}:agent"]
    assert f"docker build -t {steps['FROM']} ." in tutorial


# ---------------------------------------------------------------- the proxy
def test_the_proxy_buffers_slow_clients_for_the_workers() -> None:
    proxy = re.sub(r"#.*", "", (ROOT / "deploy" / "proxy.conf").read_text("utf-8"))
    settings = dict(re.findall(r"^ {4}(\w+) ([^;{]+);", proxy, re.MULTILINE))
    assert {
        "client_header_timeout": "10s",
        "client_body_timeout": "10s",
        "send_timeout": "30s",
        "large_client_header_buffers": "4 8k",
        "client_max_body_size": "6m",
        "proxy_request_buffering": "on",
    }.items() <= settings.items()
