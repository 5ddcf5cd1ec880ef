"""What comes with a message of an AG-UI thread: context, state, options, media, tools, the agent."""

from typing import Any

import pytest
from tests.unit.wire.ag_ui_site import (
    PATH,
    Json,
    Thread,
    message_of,
    threads,
    user,
)

from passback import Agent
from passback.models.scripted import Step
from passback.testing import ScriptedModel, says

pytestmark = pytest.mark.anyio

PAINT: Json = {"name": "paint", "description": "Paints.", "parameters": {}}


def agent(*script: list[Step], **fields: Any) -> Agent:
    return Agent(model=ScriptedModel([*script]), **fields)


async def test_context_and_state_are_data_for_the_model() -> None:
    model = ScriptedModel([says("one"), says("two"), says("three")])
    async with threads(Agent(model=model)) as client:
        thread = Thread(client)
        context = [{"description": "The page", "value": "<b>home</b>"}]
        state: Json = {"color": "red", "plan": []}
        fields: Json = {"context": context, "state": state, "forwardedProps": {"app": "x"}}
        first = message_of(await thread.post(user("a"), **fields))
        [recorded, _] = await thread.recorded()
        data = {"context": context, "state": {"color": "red"}}
        assert recorded["structuredData"] == data
        assert recorded["extras"] == {"forwardedProps": {"app": "x"}}
        [said] = [str(each.content) for each in model.requests[0].messages]
        assert "<structured_data>" in said
        assert "<b>" not in said
        # the same data once more is not shown again, other data is
        said2 = [user("a"), first, user("b", "u2")]
        second = message_of(await thread.post(*said2, **fields))
        assert "structuredData" not in (await thread.recorded())[2]
        await thread.post(*said2, second, user("c", "u3"), **{**fields, "state": {"color": "blue"}})
        changed = (await thread.recorded())[4]["structuredData"]
        assert changed == {"context": context, "state": {"color": "blue"}}


async def test_options_of_this_server_are_in_the_forwarded_props() -> None:
    model = ScriptedModel([says('{"a": 1}')])
    async with threads(Agent(model=model)) as client:
        thread = Thread(client)
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
        options = {
            "outputSchema": schema,
            "instructions": "be brief",
            "structuredData": [1],
            "onDisconnect": "cancel",
        }
        context = [{"description": "d", "value": "v"}]
        events = await thread.post(user("a"), context=context, forwardedProps={"passback": options})
        assert events[-1]["result"] == {"a": 1}
        [recorded, _] = await thread.recorded()
        assert (recorded["structuredData"], recorded["instructions"]) == ([1], "be brief")
        assert "extras" not in recorded


@pytest.mark.parametrize(("state", "kept"), [([1], {"state": [1]}), (0, None), (None, None)])
async def test_any_state_is_data(state: object, kept: object) -> None:
    async with threads(agent(says("one"))) as client:
        thread = Thread(client)
        await thread.post(user("a"), state=state)
        assert (await thread.recorded())[0].get("structuredData") == kept


async def test_tools_that_are_not_posted_stay() -> None:
    model = ScriptedModel([says("one"), says("two"), says("three")])
    async with threads(Agent(model=model)) as client:
        thread = Thread(client)
        first = message_of(await thread.post(user("a"), tools=[PAINT]))
        said = [user("a"), first, user("b", "u2")]
        second = message_of(await thread.post(*said, tools=None))
        await thread.post(*said, second, user("c", "u3"), tools=[])
        names = [[each.name for each in request.tools] for request in model.requests]
        assert [("paint" in each) for each in names] == [True, True, False]


async def test_forgotten_data_may_be_posted_again() -> None:
    async with threads(agent(says("one"), says("two"), says("three"))) as client:
        thread = Thread(client)
        fields: Json = {"state": {"a": 1}}
        first = message_of(await thread.post(user("a"), **fields))
        forgets: Json = {"forwardedProps": {"passback": {"structuredData": None}}}
        said = [user("a"), first, user("b", "u2")]
        second = message_of(await thread.post(*said, **fields, **forgets))
        await thread.post(*said, second, user("c", "u3"), **fields)
        shown = [each.get("structuredData", "none") for each in await thread.recorded()]
        assert shown[::2] == [{"state": {"a": 1}}, None, {"state": {"a": 1}}]


@pytest.mark.parametrize("props", [None, [], "text", 1])
async def test_any_json_may_be_forwarded(props: object) -> None:
    async with threads(agent(says("one"))) as client:
        thread = Thread(client)
        await thread.post(user("a"), forwardedProps=props)
        [recorded, _] = await thread.recorded()
        kept = recorded.get("extras", {}).get("forwardedProps")
        assert kept == (props or None)


async def test_media_come_with_their_sources() -> None:
    model = ScriptedModel([says("one")], media=True)
    async with threads(Agent(model=model)) as client:
        thread = Thread(client)
        png = {"type": "data", "value": "aGk=", "mimeType": "image/png"}
        content = [
            {"type": "text", "text": "look"},
            {"type": "image", "source": png},
            {"type": "audio", "source": {**png, "mimeType": "audio/wav"}},
            {"type": "video", "source": {"type": "url", "value": "https://a.b/c.mp4"}},
            {"type": "document", "source": {**png, "mimeType": "application/pdf"}},
        ]
        await thread.post(user(content))
        [recorded, _] = await thread.recorded()
        assert [(each["type"], each.get("url")) for each in recorded["content"]] == [
            ("text", None),
            ("image", "data:image/png;base64,aGk="),
            ("audio", "data:audio/wav;base64,aGk="),
            ("file", "https://a.b/c.mp4"),
            ("file", "data:application/pdf;base64,aGk="),
        ]


async def test_the_agent_is_named_in_the_path() -> None:
    one, two = (
        Agent(model=ScriptedModel([says(name)]), name=name, description=name) for name in ("x", "y")
    )
    async with threads(one, two) as client:
        thread = Thread(client, path=f"{PATH}/y")
        assert message_of(await thread.post(user("a")))["content"] == "y"
        unknown = Thread(client, "d", f"{PATH}/z")
        assert (await unknown.refusal(user("a")))[:2] == (404, "agent_not_found")
