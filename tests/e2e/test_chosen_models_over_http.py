"""A model that a client chooses, and what `passback check` says of settings, by real services over HTTP."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest
from tests.support.model_server import ModelServer, listening, model_server, says
from tests.support.server import running_server
from tests.support.wire import check_refusal, client_of, user

pytestmark = pytest.mark.anyio

KEY, OWN = "sk-of-the-settings", "sk-of-the-provider"


async def test_a_post_chooses_one_of_those_that_the_operator_allows() -> None:
    """It goes to the service with the settings' key; the next message is answered by the server's own."""
    async with model_server(says("one"), says("two"), says("three")) as model:
        environment = {
            "PASSBACK_MODEL": "openai:usual",
            "PASSBACK_MODELS": "openai:small,openai:large",
            "PASSBACK_MODEL_BASE_URL": model.base_url,
            "PASSBACK_MODEL_API_KEY": KEY,
            "OPENAI_API_KEY": OWN,
        }
        async with (
            running_server(environment=environment) as server,
            client_of(server.url) as client,
        ):
            path = "/send-message?wait=true"
            spoke: list[str] = []
            for named in ({"model": "openai:large"}, {"model": "small"}, {}):
                body = {"conversationId": "c", "messages": [user("hi")], **named}
                spoke.append((await client.http.post(path, json=body)).json()["model"])
            refused = await client.http.post(path, json={"messages": [user("hi")], "model": "gpt"})
            check_refusal(refused, 422, "unknown_model")
    assert spoke == ["openai:large", "openai:small", "openai:usual"]
    assert [request.json["model"] for request in model.requests] == ["large", "small", "usual"]
    assert {each.headers["authorization"] for each in model.requests} == {f"Bearer {KEY}"}


async def check(environment: Mapping[str, str], folder: Path) -> str:
    """What is said of the model."""
    inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    command = [sys.executable, "-m", "passback", "check", "--store", "memory:"]
    with anyio.fail_after(40):
        done = await anyio.run_process(
            command,
            env={**inherited, **environment},
            check=False,
            cwd=folder,
            stderr=subprocess.STDOUT,
        )
    assert OWN not in done.stdout.decode()
    _, model = done.stdout.decode().split("\nmodel     openai:mock: ")
    return model


async def test_check_says_the_right_base_url_and_what_a_service_does_not_tell(
    tmp_path: Path,
) -> None:
    """The key of the provider is not sent to another service, wherever the list is looked for."""
    async with listening(ModelServer([])) as model:
        right = model.base_url
        root, model.lists = right.removesuffix("/v1"), "/v1/models"
        given = {"PASSBACK_MODEL": "openai:mock", "OPENAI_API_KEY": OWN}
        wrong = await check({**given, "PASSBACK_MODEL_BASE_URL": root}, tmp_path)
        longer = await check(
            {**given, "PASSBACK_MODEL_BASE_URL": f"{right}/chat/completions"}, tmp_path
        )
        model.lists = "/nowhere"
        unlisted = await check({**given, "PASSBACK_MODEL_BASE_URL": right}, tmp_path)
    name = "PASSBACK_MODEL_BASE_URL"
    assert wrong == (
        f"{root} has no list of models, and {right} has: set the base URL ({name}) to {right}\n"
    )
    warning = "ok\n          warning: "
    assert longer == f"{warning}the base URL ({name}) has more than it needs: set it to {right}\n"
    assert unlisted == (
        f"{warning}{right} has no list of models: whether it has this one was not checked\n"
    )
    assert all("authorization" not in request.headers for request in model.looked)
