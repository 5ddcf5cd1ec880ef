"""A client that an off-the-shelf generator makes of /openapi.json, used with that server."""

import json
import os
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
from tests.e2e.asking import AGENT, ROOT
from tests.support.programs import program
from tests.support.server import Server, running_server

pytestmark = pytest.mark.anyio

SECONDS = 50

PROGRAM = """
import json, sys

from generated import Client
from generated.api.default import (
    cancel_run, claim_tool_call, delete_conversation, drop_tool_call_claim, get_conversation,
    get_messages, get_tool_calls, send_message, stream_run,
)
from generated.models import (
    Answer, Answers, Approval, ApprovalView, AssistantView, CancelRun, CancelView, ClaimCall,
    ClaimView, ConversationView, DropClaim, Error, InboxView, InputView, MessagesView, PostedData,
    PostedResume, PostedText, PostedTool, PostedToolMessage, PostedToolParametersType0,
    PostedUserMessage, Questions, RunAnswer, RunGoesOn, SendMessage, ToolView,
)

client = Client(sys.argv[1], raise_on_unexpected_status=True)


def tell(*values):
    print(json.dumps(values))


def user(text):
    return PostedUserMessage(role="user", content=text)


def post(*messages, conversation="c", wait=True, **more):
    body = SendMessage(conversation_id=conversation, messages=list(messages), **more)
    return send_message.sync(client=client, body=body, wait=wait)


def owes(*messages, **more):
    answer = post(*messages, **more)
    assert isinstance(answer, RunAnswer)
    [owed] = answer.owed
    return answer, owed


schema = PostedToolParametersType0.from_dict({"type": "object"})
zone = PostedTool(name="get-time-zone", parameters=schema)
called, owed = owes(user("get-time-zone"), tools=[zone])
tell(called.outcome, owed.name, owed.arguments, called.usage.output_tokens > 0)

status = get_conversation.sync("c", client=client)
assert isinstance(status, ConversationView)
tell(status.status, [each.id == owed.id for each in status.owed])

answered = post(PostedToolMessage(role="tool", tool_call_id=owed.id, content="UTC"))
assert isinstance(answered, RunAnswer)
tell(answered.outcome, answered.reason, answered.text, answered.owed)

again = stream_run.sync("c", client=client, wait=True)
assert again == answered

page = get_messages.sync("c", client=client, limit=4)
assert isinstance(page, MessagesView)
kinds = (InputView, AssistantView, ToolView, AssistantView)
assert [type(each) for each in page.messages] == list(kinds), page
tell([each.role for each in page.messages], page.next_, page.total)

def zone_is(content):
    _, owed = owes(user("get-time-zone"), conversation="contents", tools=[zone])
    answer = PostedToolMessage(role="tool", tool_call_id=owed.id, content=content)
    return post(answer, conversation="contents").text


data = PostedData(type_="data", data={"offset": 1})
tell(zone_is([PostedText(type_="text", text="UTC"), data]), zone_is([1, {"a": 2}]))


# ---- approvals: each form of a payload, and of resume
def wipe(answer, conversation="wiping"):
    _, owed = owes(user("wipe"), conversation=conversation)
    assert (owed.kind, owed.reason) == ("approval", "It cannot be undone.")
    resume = answer(owed.id)
    return post(conversation=conversation, resume=resume).text


denied = Approval(approved=False, reason="I need it.")
tell(wipe(lambda call: PostedResume(interrupt_id=call, payload=denied)))
tell(wipe(lambda call: PostedResume(interrupt_id=call, payload=True)))
tell(wipe(lambda call: PostedResume(interrupt_id=call, payload="yes")))
always = Approval(approved=True, always=True)
tell(wipe(lambda call: [PostedResume(interrupt_id=call, payload=always)]))
tell(post(user("wipe"), conversation="wiping").outcome)
said = get_messages.sync("wiping", client=client).messages
tell([each.approved for each in said if isinstance(each, ApprovalView)])

# ---- a question
ask_user = PostedTool(name="ask_user")
_, owed = owes(user('ask user "Which?"'), conversation="asking", tools=[ask_user])
asked = Questions.from_dict(json.loads(owed.arguments))
tell(owed.kind, [each.question for each in asked.questions])
answers = Answers(answers=[Answer(text="Blue.")])
answer = PostedToolMessage(role="tool", tool_call_id=owed.id, content=answers)
tell(post(answer, conversation="asking").text)

# ---- the inbox, and a claim
_, owed = owes(user("get-time-zone"), conversation="claims", tools=[zone])
inbox = get_tool_calls.sync(client=client, status="owed", limit=10)
assert isinstance(inbox, InboxView)
calls = [[each.conversation_id, each.name, each.id == owed.id] for each in inbox.tool_calls]
tell(calls, inbox.next_)


def claim(claimant):
    body = ClaimCall(claimant=claimant, seconds=60)
    return claim_tool_call.sync("claims", owed.id, client=client, body=body)


held, refused = claim("tab"), claim("phone")
assert isinstance(held, ClaimView)
assert isinstance(refused, Error)
tell(held.claimant, refused.code)
tell(get_conversation.sync("claims", client=client).owed[0].claimed_until == held.expires_at)
dropped = drop_tool_call_claim.sync_detailed(
    "claims", owed.id, client=client, body=DropClaim(claimant="tab")
)
tell(dropped.status_code.value, claim("phone").claimant)

going_on = post(user("count to 900"), conversation="long", wait=1)
assert isinstance(going_on, RunGoesOn)
busy = post(user("hi"), conversation="long")
assert isinstance(busy, Error)
tell(busy.code)
cancelled = cancel_run.sync("long", client=client, body=CancelRun(run_id=going_on.run_id))
assert isinstance(cancelled, CancelView)
ended = stream_run.sync("long", client=client, run_id=going_on.run_id, wait=30)
assert isinstance(ended, RunAnswer)
tell(cancelled.cancelled, ended.outcome, ended.text[:5])

refused = post(user("hi"), wait=0)
assert isinstance(refused, Error)
tell(refused.code, refused.message, refused.details.additional_properties)

gone = delete_conversation.sync_detailed("c", client=client)
tell(gone.status_code.value)
missing = get_conversation.sync("c", client=client)
assert isinstance(missing, Error)
tell(missing.code)
"""

PRINTED = [
    ["handed-back", "get-time-zone", "{}", True],
    ["idle", [True]],
    ["completed", "end_turn", 'Done. get-time-zone answered: "UTC".', []],
    [["user", "assistant", "tool", "assistant"], None, 4],
    [
        'Done. get-time-zone answered: "UTC\n{"offset": 1}".',
        'Done. get-time-zone answered: "[1, {"a": 2}]".',
    ],
    ['Done. wipe failed: "This call was not allowed. The user says: I need it.".'],
    *[['Done. wipe answered: "wiped".']] * 3,
    ["completed"],
    [[False, True, True, True]],
    ["question", ["Which?"]],
    ['Done. ask_user answered: "{"answers": [{"text": "Blue."}]}".'],
    [[["claims", "get-time-zone", True]], None],
    ["tab", "call_claimed"],
    [True],
    [204, "phone"],
    ["conversation_busy"],
    [True, "cancelled", "1 2 3"],
    [
        "invalid_request",
        "wait has to be true, false, or a number of seconds from 1 to 3600",
        {"parameter": "wait"},
    ],
    [204],
    ["conversation_not_found"],
]


@pytest.fixture(scope="module")
async def asks() -> AsyncGenerator[Server]:
    """A server with a tool `wipe` that needs approval; its model calls what the words name."""
    async with running_server(AGENT, cwd=str(ROOT)) as server:
        yield server


@pytest.mark.timeout(120)
async def test_a_generated_client_holds_a_session(asks: Server, tmp_path: Path) -> None:
    generator = Path(program("openapi-python-client", variable="TEST_OPENAPI_CLIENT"))
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"post_hooks": [], "http_timeout": 20}))
    made = await output_of(
        *(str(generator), "generate", f"--url={asks.url}/openapi.json", "--meta=none"),
        *(f"--output-path={tmp_path / 'generated'}", f"--config={config}", "--fail-on-warning"),
    )
    assert "Warning" not in made
    python = str(generator.with_name("python"))
    output = await output_of(python, "-c", PROGRAM, asks.url, folder=tmp_path)
    assert [json.loads(line) for line in output.splitlines()] == PRINTED


async def output_of(*command: str, folder: Path | None = None) -> str:
    """Return what a program prints, and check that it ends well, without our environment."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    with anyio.fail_after(SECONDS):
        done = await anyio.run_process(command, cwd=folder, env=environment, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()
