"""What an agent says of its tools' being called, and that the server's settings go before it."""

from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest
from tests.support.asgi_client import ask_json

from passback import Agent, Permission, tool
from passback.app import Application
from passback.core.errors import ConfigurationError
from passback.core.messages import RunRef, ToolCall
from passback.core.permissions import Decision, Rule
from passback.core.questions import ASK_USER
from passback.models.scripted import ScriptedModel, calls, says
from passback.settings import load_settings

pytestmark = pytest.mark.anyio

GO = {"conversationId": "c", "messages": [{"role": "user", "content": "go"}]}


@tool(permission=Permission("ask", "The tool's word."))
def pay() -> str:
    return "paid"


def private(call: ToolCall, _run: RunRef) -> Permission | None:
    return Permission("deny", "The agent's word.") if call.name == "pay" else None


ALLOWED, ASKED = "paid", "The tool's word."
CASES: list[tuple[str, Mapping[str, Decision] | Rule | None, str]] = [
    ("", None, ASKED),
    ("", {}, ASKED),
    ("", {"p*": "allow"}, ALLOWED),
    ("", {"x": "deny"}, ASKED),
    ("", private, "Not executed: The agent's word."),
    ("pay=allow", private, ALLOWED),
    ("x=allow", private, "Not executed: The agent's word."),
    ("x=deny, p?y=allow, *=deny", {"pay": "deny"}, ALLOWED),
    ("pay=deny", {"pay": "allow"}, "Not executed: this tool may not be called"),
    ("pay=ask", {"pay": "allow"}, "The agent wants to call pay."),
]


@pytest.mark.parametrize(("setting", "permissions", "told"), CASES)
async def test_the_settings_go_before_the_agent_and_the_agent_before_the_tool(
    setting: str, permissions: Mapping[str, Decision] | Rule | None, told: str
) -> None:
    model = ScriptedModel([calls(("pay", {})), says("so")])
    agent = Agent(model=model, tools=[pay], permissions=permissions)
    settings = load_settings({"PASSBACK_STORE": "memory:", "PASSBACK_PERMISSIONS": setting})
    application = Application(settings, agent)
    with anyio.fail_after(10):
        async with application.running():
            answer = await ask_json(application.asgi, "POST", "/send-message", GO)
    assert answer.status == 200
    assert f'"{told}"' in answer.body.decode()


@pytest.mark.parametrize("permissions", [{"pay": "perhaps"}, {"pay": None}])
def test_an_agent_with_a_permission_that_there_is_not_does_not_start(
    permissions: Mapping[str, Decision],
) -> None:
    with pytest.raises(
        ConfigurationError, match=r"\.pay: Input should be 'allow', 'deny' or 'ask'"
    ):
        Application(load_settings({"PASSBACK_STORE": "memory:"}), Agent(permissions=permissions))


@pytest.mark.parametrize("offers", [True, False])
async def test_an_agent_may_offer_to_ask_the_user(offers: bool) -> None:
    model = ScriptedModel([says("so")])
    agent = Agent(model=model, tools=[pay], ask_user=offers)
    application = Application(load_settings({"PASSBACK_STORE": "memory:"}), agent)
    with anyio.fail_after(10):
        async with application.running():
            await ask_json(application.asgi, "POST", "/send-message", GO)
    assert model.requests[0].tools == ((pay.spec, ASK_USER) if offers else (pay.spec,))


@pytest.mark.promise("P12")
async def test_an_approval_of_an_agent_that_is_gone_is_refused_and_a_message_to_another_goes_on(
    tmp_path: Path,
) -> None:
    settings = load_settings({"PASSBACK_STORE": f"sqlite:///{tmp_path}/talks.db"})
    others = [Agent(ScriptedModel([says("so")]), name="b"), Agent(ScriptedModel([]), name="c")]
    gone = Agent(ScriptedModel([calls(("pay", {}))]), tools=[pay], name="a")
    path = "/v1/aibot/bots/{}/send-message?wait=true"
    with anyio.fail_after(20):
        first = Application(settings, gone, *others)
        async with first.running():
            asked = (await ask_json(first.asgi, "POST", path.format("a"), GO)).json
        second = Application(settings, *others)
        async with second.running():
            answer = {"interruptId": asked["owed"][0]["id"], "payload": {"approved": False}}
            resume = {"conversationId": "c", "resume": answer}
            refused = await ask_json(second.asgi, "POST", path.format("b"), resume)
            taken = await ask_json(second.asgi, "POST", path.format("b"), GO)
    assert (refused.status, refused.json["code"], refused.json["message"]) == (
        404,
        "agent_not_found",
        "the agent that was asked last here is not on this server; send a message to another agent to continue",
    )
    assert (taken.status, taken.json["text"]) == (200, "so")
