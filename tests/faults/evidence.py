"""The evidence that the checkers judge: the operations of clients, and the state in the end.

An `Operation` is what a client recorded of one post. `FinalState` is what a worker answers when
everything is over: the history of each conversation, and a fresh read of each run.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import anyio
import httpx
from tests.faults.mock_model import match_prompt, prompt
from tests.faults.workers import TOOL_RESULT
from tests.support.waiting import pause
from tests.support.wire import DONE, Client, Frame, Json, client_of, text_of

Completion: TypeAlias = Literal["ok", "refused", "unknown"]

SETTLING_SECONDS = 90.0
"""Time that the last runs may take to end, however busy the machine is."""


# ---------------------------------------------------------------- operations
@dataclass(frozen=True, slots=True)
class Post:
    """A message that a client posts.

    Attributes:
        conversation: the conversation's id.
        token: unique; the message's id, its idempotency key, and the first word of its text.
        policy: `onBusy`.
        words: number of words of the answer.
        delay: milliseconds between the words.
        tool: the tool that the answer calls at its end, if any.
        call_id: the call that this is the result of; empty: it is a user message.
    """

    conversation: str
    token: str
    policy: str = "reject"
    words: int = 20
    delay: int = 10
    tool: str = ""
    call_id: str = ""

    @property
    def message(self) -> Json:
        if self.call_id:
            return {"role": "tool", "toolCallId": self.call_id, "content": self.token}
        text = prompt(self.token, self.words, self.delay, self.tool)
        return {"role": "user", "content": text, "id": self.token}


@dataclass(slots=True)
class Operation:
    """One post, and what its client recorded. Times are seconds of the monotonic clock.

    Attributes:
        acknowledged: when the first 200 came; None: never.
        refusal: status and code of the last refusal.
        indeterminate: whether a request got no answer, so that it may have been executed.
        run_id: the run that answered.
        frames: the frames that the client holds in the end, without those that became void.
        void_frames: number of frames that became void.
        disconnects: how often its stream broke off.
        restarted: whether it read again without a cursor after its connection broke.
        ended: whether `[DONE]` came.
        protocol_errors: what a server must not have done.
    """

    post: Post
    invoked: float
    acknowledged: float | None = None
    refusal: str = ""
    indeterminate: bool = False
    run_id: str = ""
    frames: list[Frame] = field(default_factory=list[Frame])
    void_frames: int = 0
    disconnects: int = 0
    restarted: bool = False
    ended: bool = False
    protocol_errors: list[str] = field(default_factory=list[str])

    @property
    def completion(self) -> Completion:
        if self.acknowledged is not None:
            return "ok"
        return "refused" if self.refusal and not self.indeterminate else "unknown"

    @property
    def text(self) -> str:
        return text_of(self.frames)

    @property
    def outcome(self) -> str:
        """The end of its run, as far as the client saw: `completed`, `failed: lost`, or nothing."""
        return run_outcome(self.frames)


def operation_from_json(value: Json) -> Operation:
    """Return the operation of which `value` is the `asdict`."""
    post = Post(**value["post"])
    frames = [Frame(**frame) for frame in value["frames"]]
    return Operation(**{**value, "post": post, "frames": frames})


# ---------------------------------------------------------------- frames and messages
def select_events(frames: Iterable[Frame], kind: str = "") -> list[Json]:
    """Return the events among frames, of one type if it is named."""
    events = [frame.event for frame in frames if frame.data != DONE]
    return [event for event in events if kind in {"", event["type"]}]


def run_outcome(frames: Sequence[Frame]) -> str:
    ends = select_events(frames, "run-end")
    if not ends:
        return ""
    outcome = str(ends[-1]["outcome"])
    return f"failed: {ends[-1].get('reason')}" if outcome == "failed" else outcome


def open_calls(frames: Sequence[Frame]) -> list[str]:
    """Return the calls that the client has to execute."""
    answered = {event["toolCallId"] for event in select_events(frames, "tool-result")}
    ended = [str(event["toolCallId"]) for event in select_events(frames, "tool-call-end")]
    return [call for call in ended if call not in answered]


def message_token(message: Json) -> str:
    """Return the token of the post that a message came from; empty for the server's own."""
    if message["role"] == "tool":
        by_server = message.get("synthetic") or message["content"] == TOOL_RESULT
        return "" if by_server else str(message["content"])
    found = match_prompt(message)
    return found["token"] if found else ""


# ---------------------------------------------------------------- the state in the end
@dataclass(slots=True)
class FinalState:
    """The answers of a living worker.

    Attributes:
        histories: the messages of each conversation.
        replays: a fresh read of each run that a client knows of.
        unreadable: a text for each conversation or run that could not be read.
    """

    histories: dict[str, list[Json]] = field(default_factory=dict[str, list[Json]])
    replays: dict[str, Sequence[Frame]] = field(default_factory=dict[str, Sequence[Frame]])
    unreadable: list[str] = field(default_factory=list[str])


async def read_final_state(url: str, operations: Sequence[Operation]) -> FinalState:
    """Wait until nothing runs any more, then read everything."""
    state = FinalState()
    async with client_of(url) as client:
        for conversation in dict.fromkeys(each.post.conversation for each in operations):
            try:
                state.histories[conversation] = await _read_history(client, conversation)
            except (httpx.TransportError, KeyError, TimeoutError) as error:
                state.unreadable.append(f"{conversation} cannot be read: {error!r}")
        for operation in operations:
            if operation.run_id and operation.run_id not in state.replays:
                await _read_run(client, operation, state)
    return state


async def _read_history(client: Client, conversation: str) -> list[Json]:
    path = f"/conversations/{conversation}"
    with anyio.fail_after(SETTLING_SECONDS):
        while (found := await client.http.get(path)).status_code == 200 and _is_busy(found.json()):
            await pause(0.05)
    messages: list[Json] = []
    after: int | None = 0
    while found.status_code == 200 and after is not None:
        parameters = {"after": after, "limit": 1000}
        page = (await client.http.get(f"{path}/messages", params=parameters)).json()
        messages += page["messages"]
        after = page["next"]
    return messages


def _is_busy(conversation: Json) -> bool:
    return conversation["status"] == "running" or bool(conversation.get("queued"))


async def _read_run(client: Client, operation: Operation, state: FinalState) -> None:
    """Read a run from its start, as a client that saw nothing of it."""
    run_id = operation.run_id
    try:
        with anyio.fail_after(SETTLING_SECONDS):
            answer = await client.replay(
                operation.post.conversation, after=f"{run_id}.0-0", include=["run"]
            )
    except (httpx.TransportError, TimeoutError) as error:
        state.unreadable.append(f"{run_id} cannot be read: {error!r}")
        return
    if answer.status != 200:
        state.unreadable.append(f"{run_id} cannot be read: {answer.body.decode()}")
        return
    state.replays[run_id] = answer.frames
