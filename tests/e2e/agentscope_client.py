"""A program for a Python with agentscope-runtime: its own client asks a server and reports.

    python agentscope_client.py URL HEADERS < REQUEST

Prints a JSON object: the events of its two ways to read a stream, and what its own message makes of
the content. Its package is entered by a side door: its front door imports a whole server.
"""

import asyncio
import importlib
import importlib.util
import json
import sys
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

NAME = "agentscope_runtime"


def main() -> None:
    url, headers = sys.argv[1], json.loads(sys.argv[2])
    schemas, client_of = _package()
    request = schemas.AgentRequest(**json.load(sys.stdin))
    client = client_of(endpoint=url, headers=headers)
    events = list(client.stream(request))
    later = asyncio.run(_gathered(client, request))
    report = {
        "stream": [_as_json(event) for event in events],
        "astream": [_as_json(event) for event in later],
        "rebuilt": _rebuilt(schemas, events),
    }
    sys.stdout.write(json.dumps(report))


def _package() -> tuple[Any, Any]:
    spec = importlib.util.find_spec(NAME)
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent
    for name, place in ((NAME, folder), (f"{NAME}.engine", folder / "engine")):
        module = types.ModuleType(name)
        module.__path__ = [str(place)]
        sys.modules[name] = module
    schemas = importlib.import_module(f"{NAME}.engine.schemas.agent_schemas")
    helper = importlib.import_module(f"{NAME}.engine.helpers.agent_api_client")
    return schemas, helper.HTTPAgentAPIClient


async def _gathered(client: Any, request: Any) -> list[Any]:
    return [event async for event in client.astream(request)]


def _as_json(event: Any) -> dict[str, Any]:
    fields: dict[str, Any] = event.model_dump(mode="json", exclude_none=True)
    return {**fields, "class": type(event).__name__}


def _rebuilt(schemas: Any, events: Iterable[Any]) -> list[str]:
    """The texts of the messages, by the package's own way to gather deltas."""
    messages: dict[str, Any] = {}
    for event in events:
        if event.object == "message" and event.status == "in_progress":
            messages[event.id] = schemas.Message(id=event.id, type=event.type, role=event.role)
        elif event.object == "content" and event.delta and event.type == "text":
            message = messages[event.msg_id]
            piece = event.model_copy()
            if not message.content:
                piece.index = None  # so it begins a part
            message.add_delta_content(new_content=piece)
    return [message.content[0].text for message in messages.values() if message.content]


if __name__ == "__main__":
    main()
