"""Checks of a model's settings by `passback check`, with a real service over HTTP."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest
from tests.support.model_server import ModelServer, listening

pytestmark = pytest.mark.anyio

KEY, OWN = "sk-of-the-settings", "sk-of-the-provider"


async def check(environment: Mapping[str, str], folder: Path) -> str:
    """Return the lines about the model."""
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
