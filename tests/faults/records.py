"""What clients noted of their posts: the evidence that checkers judge."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, TypeAlias

from tests.faults.places import DONE_WORK
from tests.faults.traced_model import order, order_in
from tests.support.wire import DONE, Frame, Json, text_of

Verdict: TypeAlias = Literal["ok", "refused", "unknown"]


@dataclass(frozen=True, slots=True)
class Post:
    """What a client wants to say.

    Args:
        conversation: where.
        token: unique; the message's id, its idempotency key, and the first word of its text.
        policy: `onBusy`.
        words: of the answer.
        pace: milliseconds between the words.
        tool: what the answer calls at its end, if anything.
        answers: the call that this is the result of; empty: it is a user message.
    """

    conversation: str
    token: str
    policy: str = "reject"
    words: int = 20
    pace: int = 10
    tool: str = ""
    answers: str = ""

    @property
    def message(self) -> Json:
        if self.answers:
            return {"role": "tool", "toolCallId": self.answers, "content": self.token}
        text = order(self.token, self.words, self.pace, self.tool)
        return {"role": "user", "content": text, "id": self.token}


@dataclass(slots=True)
class Operation:
    """One post and what came of it. Times are seconds of the monotonic clock.

    Attributes:
        acknowledged: when the first 200 came; None: never.
        refusal: status and code of the last refusal.
        doubtful: whether it was sent once without an answer, so that it may have been done.
        run_id: the run that answered.
        frames: what the client holds in the end; what was declared void is taken out.
        void: how many frames were taken out.
        cuts: how often its stream broke off.
        forgot: whether it has begun from nothing after a worker's connection broke.
        ended: whether `[DONE]` came.
        notes: what a server must not have done.
    """

    post: Post
    invoked: float
    acknowledged: float | None = None
    refusal: str = ""
    doubtful: bool = False
    run_id: str = ""
    frames: list[Frame] = field(default_factory=list[Frame])
    void: int = 0
    cuts: int = 0
    forgot: bool = False
    ended: bool = False
    notes: list[str] = field(default_factory=list[str])

    @property
    def verdict(self) -> Verdict:
        if self.acknowledged is not None:
            return "ok"
        return "refused" if self.refusal and not self.doubtful else "unknown"

    @property
    def text(self) -> str:
        return text_of(self.frames)

    @property
    def outcome(self) -> str:
        """How its run ended, as far as the client saw: `completed`, `failed: lost`, or nothing."""
        return outcome_of(self.frames)


def events_of(frames: Iterable[Frame], kind: str = "") -> list[Json]:
    """The events among frames, of one type if it is named."""
    events = [frame.event for frame in frames if frame.data != DONE]
    return [event for event in events if kind in {"", event["type"]}]


def outcome_of(frames: Sequence[Frame]) -> str:
    ends = events_of(frames, "run-end")
    if not ends:
        return ""
    outcome = str(ends[-1]["outcome"])
    return f"failed: {ends[-1].get('reason')}" if outcome == "failed" else outcome


def open_calls(frames: Sequence[Frame]) -> list[str]:
    """The calls that the client has to execute."""
    answered = {event["toolCallId"] for event in events_of(frames, "tool-result")}
    ended = [str(event["toolCallId"]) for event in events_of(frames, "tool-call-end")]
    return [call for call in ended if call not in answered]


def token_of(message: Json) -> str:
    """Which post a message of a history came from; empty for what the server wrote."""
    if message["role"] == "tool":
        by_server = message.get("synthetic") or message["content"] == DONE_WORK
        return "" if by_server else str(message["content"])
    found = order_in(message)
    return found["token"] if found else ""


# ---------------------------------------------------------------- between processes
def as_json(operation: Operation) -> Json:
    return asdict(operation)


def from_json(value: Json) -> Operation:
    post = Post(**value["post"])
    frames = [Frame(**frame) for frame in value["frames"]]
    return Operation(**{**value, "post": post, "frames": frames})
