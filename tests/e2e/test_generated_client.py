"""A client that an off-the-shelf generator made of /openapi.json, used against the server that described itself."""

import json
import os
from pathlib import Path

import anyio
import pytest
from tests.support.programs import program
from tests.support.server import Server

pytestmark = pytest.mark.anyio

SECONDS = 50

PROGRAM = """
import json, sys

from generated import Client
from generated.api.default import (
    cancel_run, delete_conversation, get_conversation, get_messages, send_message, stream_run
)
from generated.models import (
    AssistantView, CancelRun, CancelView, ConversationView, Error, InputView, MessagesView,
    PostedTool, PostedToolMessage, PostedUserMessage, RunAnswer, RunGoesOn, SendMessage, ToolView,
)

client = Client(sys.argv[1], raise_on_unexpected_status=True)


def tell(*values):
    print(json.dumps(values))


def user(text):
    return PostedUserMessage(role="user", content=text)


def post(*messages, conversation="c", wait=True, **more):
    body = SendMessage(conversation_id=conversation, messages=list(messages), **more)
    return send_message.sync(client=client, body=body, wait=wait)


tools = [PostedTool(name="get-time-zone").to_dict()]
called = post(user("get-time-zone"), tools=tools)
assert isinstance(called, RunAnswer)
[owed] = called.owed
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

TOLD = [
    ["handed-back", "get-time-zone", "{}", True],
    ["idle", [True]],
    ["completed", "end_turn", 'Done. get-time-zone answered: "UTC".', []],
    [["user", "assistant", "tool", "assistant"], None, 4],
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


@pytest.mark.timeout(120)
async def test_a_generated_client_holds_a_session(slow: Server, tmp_path: Path) -> None:
    generator = Path(program("openapi-python-client", variable="TEST_OPENAPI_CLIENT"))
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"post_hooks": [], "http_timeout": 20}))
    made = await output_of(
        *(str(generator), "generate", f"--url={slow.url}/openapi.json", "--meta=none"),
        *(f"--output-path={tmp_path / 'generated'}", f"--config={config}", "--fail-on-warning"),
    )
    assert "Warning" not in made
    python = str(generator.with_name("python"))
    told = await output_of(python, "-c", PROGRAM, slow.url, folder=tmp_path)
    assert [json.loads(line) for line in told.splitlines()] == TOLD


async def output_of(*command: str, folder: Path | None = None) -> str:
    """What a program prints, which has to end well; nothing of our own environment is on its path."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    with anyio.fail_after(SECONDS):
        done = await anyio.run_process(command, cwd=folder, env=environment, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()
