"""A server whose model is a scripted service, and a client of it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.support.dialects import Dialect
from tests.support.model_server import ModelServer, listening
from tests.support.server import running_server
from tests.support.wire import Client, client_of

KEY = "sk-test-key"


@dataclass(frozen=True)
class Stage:
    """A client of a server, the model's service behind it, and how that speaks."""

    client: Client
    model: ModelServer
    dialect: Dialect


@asynccontextmanager
async def model_stage(dialect: Dialect) -> AsyncGenerator[Stage]:
    """Leaving it raises AssertionError for a request that the provider would have refused."""
    async with listening(dialect.serve([])) as model:
        environment = {
            "PASSBACK_MODEL": f"{dialect.kind}:mock",
            "PASSBACK_MODEL_BASE_URL": model.base_url,
            "PASSBACK_MODEL_API_KEY": KEY,
        }
        async with (
            running_server(environment=environment) as server,
            client_of(server.url) as client,
        ):
            yield Stage(client, model, dialect)
    model.assert_obeyed()
