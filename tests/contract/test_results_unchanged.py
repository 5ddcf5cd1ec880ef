"""Results of a client's tool reach the record, the history and the model unchanged."""

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import JsonValue
from starlette.types import ASGIApp
from tests.support.asgi_client import Answer, ask, ask_json
from tests.support.lanes import examples

from passback.agent import Agent
from passback.app import Application
from passback.models.openai_chat.encoding import encode_request
from passback.models.scripted import ScriptedModel, calls, says
from passback.settings import load_settings

pytestmark = pytest.mark.anyio

_numbers = count(1)
LIMIT = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Stage:
    """A worker whose model calls a client's tool in each conversation, then says something."""

    app: ASGIApp
    model: ScriptedModel

    async def owing(self) -> tuple[str, str]:
        """A new conversation in which the call is owed, and the call's id."""
        name = f"conversation-{next(_numbers)}"
        asked: JsonValue = {"role": "user", "content": "look"}
        await self.post(name, asked, tools=[{"name": "look"}])
        found = await ask(self.app, "GET", f"/conversations/{name}")
        return name, str(found.json["owed"][0]["id"])

    async def post(self, name: str, message: JsonValue, **more: JsonValue) -> Answer:
        body = {"conversationId": name, "messages": [message], **more}
        return await ask_json(self.app, "POST", "/send-message", body)

    async def answered(self, content: JsonValue, *, is_error: bool = False) -> JsonValue:
        """Post a result; gives its content as the history shows it."""
        name, call = await self.owing()
        result: JsonValue = {
            "role": "tool",
            "toolCallId": call,
            "content": content,
            "isError": is_error,
        }
        assert (await self.post(name, result)).status == 200
        history = await ask(self.app, "GET", f"/conversations/{name}/messages")
        message = history.json["messages"][2]
        assert (message["role"], message.get("isError", False)) == ("tool", is_error)
        shown: JsonValue = message["content"]
        return shown

    def sent_result(self) -> str:
        """The last result as the model's service is sent it."""
        body = json.loads(encode_request("m", "p", self.model.requests[-1]))
        content: str = body["messages"][-1]["content"]
        return content


@pytest.fixture
async def stage(store_url: str) -> AsyncGenerator[Stage]:
    model = ScriptedModel([calls(("look", {})), says("I see.")] * 500)
    application = Application(
        load_settings({"PASSBACK_STORE": store_url, "PASSBACK_MODEL_WINDOW": "0"}),
        Agent(model=model),
    )
    async with application.running():
        yield Stage(application.asgi, model)


# lone surrogates are no UTF-8, and a body with one is refused
_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_finite = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
_json = st.recursive(
    st.none() | st.booleans() | _finite | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=8,
)
_parts = st.lists(
    st.one_of(
        _texts.map(lambda text: {"type": "text", "text": text}),
        _json.map(lambda data: {"type": "data", "data": data}),
        st.just({"type": "image", "url": "https://x/a.png", "mediaType": "image/png"}),
    ),
    min_size=1,
    max_size=4,
)
_some_examples = settings(examples(25), suppress_health_check=list(HealthCheck))


def _written(value: JsonValue) -> str:
    """JSON, in which 1 is not 1.0 and the keys have an order."""
    return json.dumps(value, ensure_ascii=False)


@_some_examples
@given(text=_texts, is_error=st.booleans())
async def test_a_text_is_passed_on_to_the_letter(stage: Stage, text: str, is_error: bool) -> None:
    assert await stage.answered(text, is_error=is_error) == text
    assert stage.sent_result() == (f"Error: {text}" if is_error else text)


@_some_examples
@given(value=_json.filter(lambda value: not isinstance(value, str)))
async def test_json_is_passed_on_with_all_that_is_in_it(stage: Stage, value: JsonValue) -> None:
    shown = await stage.answered(value)
    assert _written(shown) == _written([{"type": "data", "data": value}])
    assert stage.sent_result() == _written(value)


@_some_examples
@given(parts=_parts)
async def test_parts_are_passed_on_one_by_one(
    stage: Stage, parts: list[dict[str, JsonValue]]
) -> None:
    assert _written(await stage.answered([*parts])) == _written([*parts])
    assert stage.sent_result() == "\n".join(_line(part) for part in parts)


def _line(part: dict[str, JsonValue]) -> str:
    if "data" in part:
        return _written(part["data"])
    return str(part.get("text", "[image: https://x/a.png]"))


@pytest.mark.promise("P12")
async def test_what_only_looks_like_parts_is_data(stage: Stage) -> None:
    listing: JsonValue = [{"type": "file", "url": "https://x/", "size": 3}]
    assert await stage.answered(listing) == [{"type": "data", "data": listing}]
    assert stage.sent_result() == _written(listing)


@pytest.mark.promise("P11", "P12")
@pytest.mark.parametrize(
    ("most", "more"),
    [
        ("x" * LIMIT, "x" * (LIMIT + 1)),
        ("\u00e9" * (LIMIT // 2), "\u00e9" * (LIMIT // 2) + "x"),
        (["x" * (LIMIT - 4)], ["x" * (LIMIT - 3)]),
    ],
    ids=["text", "text beyond ASCII", "JSON"],
)
async def test_a_result_has_a_limit(stage: Stage, most: JsonValue, more: JsonValue) -> None:
    name, call = await stage.owing()
    before = await ask(stage.app, "GET", f"/conversations/{name}")
    refused = await stage.post(name, {"role": "tool", "toolCallId": call, "content": more})
    assert (refused.status, refused.code) == (413, "result_too_large")
    assert refused.json["details"] == {"limit": LIMIT}
    assert len(refused.body) < 300
    assert (await ask(stage.app, "GET", f"/conversations/{name}")).json == before.json
    taken = await stage.post(name, {"role": "tool", "toolCallId": call, "content": most})
    assert taken.status == 200
    assert stage.sent_result() == (most if isinstance(most, str) else _written(most))
