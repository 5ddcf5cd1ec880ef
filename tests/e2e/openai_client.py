"""A program for a Python with `openai`: its clients do what a test says.

It prints `ready`. Then there is one command a line of standard input, as JSON, and one line of JSON
for each with what came of it: `way` is the client, `sync` or `async`; `op` is one of `OPERATIONS`; the other keys are its
arguments. An exception is an answer, too: `{"error": {"class", ...}}`.
"""

import asyncio
import importlib
import inspect
import json
import sys
from collections.abc import AsyncGenerator
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

openai: Any = importlib.import_module("openai")
httpx: Any = importlib.import_module("httpx2")
pydantic: Any = importlib.import_module("pydantic")
ERRORS: Any = (openai.OpenAIError, httpx.HTTPError, ValueError, RuntimeError)
Town: Any = pydantic.create_model("Town", name=(str, ...), people=(int, ...))


# ---------------------------------------------------------------- both clients alike
async def settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def each_of(stream: Any) -> AsyncGenerator[Any]:
    if hasattr(stream, "__aiter__"):
        async for each in stream:
            yield each
    else:
        for each in stream:
            yield each


class Opened:
    """A context manager of either kind, as one of an `async with`."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager

    async def __aenter__(self) -> Any:
        if hasattr(self._manager, "__aenter__"):
            return await self._manager.__aenter__()
        return self._manager.__enter__()

    async def __aexit__(self, *error: Any) -> None:
        if hasattr(self._manager, "__aexit__"):
            await self._manager.__aexit__(*error)
        else:
            self._manager.__exit__(*error)


def as_json(value: Any) -> Json:
    """Return an object of the package. `said` is what it takes for the text of a response.

    The package builds it without looking: here it has to fit its own types. Of an error it knows
    the codes of OpenAI's models, and any other server has more.
    """
    shown: Json = value.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
    type(value).model_validate(_with_known_code(shown))
    if hasattr(value, "output_text"):
        shown["said"] = value.output_text
    return shown


def _with_known_code(shown: Json) -> Json:
    if isinstance(shown.get("response"), dict):
        return {**shown, "response": _with_known_code(shown["response"])}
    if shown.get("object") == "response" and shown["error"]:
        return {**shown, "error": {**shown["error"], "code": "server_error"}}
    return shown


# ---------------------------------------------------------------- operations
async def call(client: Any, method: str, args: list[Any], params: Json) -> Json:
    """Call a method of the client: `responses.create`, say."""
    for name in method.split("."):
        client = getattr(client, name)
    answer = await settled(client(*args, **params))
    return {} if answer is None else as_json(answer)  # what is deleted gives nothing


async def events(client: Any, params: Json, response: str | None, most: int | None) -> Json:
    """Read the events of a new response, or of one that there is; after so many of them, leave."""
    ways = client.responses
    made = ways.create(**params) if response is None else ways.retrieve(response, **params)
    seen: list[Json] = []
    async with Opened(await settled(made)) as stream:
        async for event in each_of(stream):
            seen.append(as_json(event))
            if len(seen) == most:
                break
    return {"events": seen}


async def helper(client: Any, params: Json) -> Json:
    """Let the stream's helper gather a response."""
    async with Opened(client.responses.stream(**params)) as stream:
        seen = [as_json(event) async for event in each_of(stream)]
        final = await settled(stream.get_final_response())
    return {"events": seen, "final": as_json(final)}


async def parsed(client: Any, params: Json) -> Json:
    """Ask for a town, and let the client read the answer as one."""
    answer = await settled(client.responses.parse(text_format=Town, **params))
    return {"town": answer.output_parsed.model_dump(), "response": as_json(answer)}


async def listed(client: Any, response: str | None, params: Json) -> Json:
    """Return the input items of a response page by page, or else the models."""
    if response is None:
        pages = client.models.list()
    else:
        pages = client.responses.input_items.list(response, **params)
    return {"items": [as_json(each) async for each in each_of(pages)]}


_begun: dict[str, Any] = {}
"""Streams that are being read, and their events, by the URL of their server."""


async def begin(client: Any, params: Json, response: str | None, until: str) -> Json:
    """Begin a stream as `events` does, and read it until an event of a type has come."""
    ways = client.responses
    made = ways.create(**params) if response is None else ways.retrieve(response, **params)
    stream = await settled(made)
    _begun[str(client.base_url)] = stream, (coming := each_of(stream))
    seen: list[Json] = []
    async for event in coming:
        seen.append(as_json(event))
        if event.type == until:
            break
    return {"events": seen}


async def rest(client: Any) -> Json:
    """Read what comes of that stream, and how it breaks."""
    stream, coming = _begun.pop(str(client.base_url))
    seen: list[Json] = []
    try:
        async for event in coming:  # what came before it broke is told, too
            seen.append(as_json(event))  # noqa: PERF401
    except ERRORS as error:
        return {"events": seen, "broken": type(error).__name__}
    finally:
        await settled(stream.close())
    return {"events": seen, "broken": None}


OPERATIONS = {each.__name__: each for each in (call, events, helper, parsed, listed, begin, rest)}


# ---------------------------------------------------------------- the program
def failure(error: Exception) -> Json:
    """Return what the package makes of an error's answer."""
    kept = ("status_code", "code", "param", "type", "message", "body")
    shown = {name: getattr(error, name, None) for name in kept}
    response = getattr(error, "response", None)
    headers = {} if response is None else dict(response.headers)
    return {"class": type(error).__name__, "text": str(error), **shown, "headers": headers}


async def answer(clients: dict[Any, Any], command: Json) -> Json:
    way, url, op = (command.pop(name) for name in ("way", "url", "op"))
    options = command.pop("options", {})
    known = json.dumps([way, url, options])
    if known not in clients:
        kind = openai.OpenAI if way == "sync" else openai.AsyncOpenAI
        clients[known] = kind(base_url=url, **{"api_key": "none", "max_retries": 0, **options})
    try:
        return await OPERATIONS[op](clients[known], **command)
    except ERRORS as error:
        return {"error": failure(error)}


async def main() -> None:
    clients: dict[Any, Any] = {}
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        shown = await answer(clients, json.loads(line))
        sys.stdout.write(f"{json.dumps(shown)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
