"""A conversation that a test leads by posts to two workers in turn, with a scripted model."""

import itertools
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from tests.e2e.transcript_lines import asked, history, names_of, posted, resumed
from tests.support.model_server import ModelServer, Reply, calls, says
from tests.support.wire import DONE, Answer, Client, Json, Stream, client_tool, keyed

TOOLS = [client_tool(name) for name in ("zone", "color", "clock")]
INCLUDE = ["run", "owed"]
ARGUMENTS = {"price": '{"drink": "tea"}'}


@dataclass(frozen=True, slots=True)
class Post:
    """Lines of `tests.e2e.transcript_lines`, and what comes with them."""

    lines: Sequence[str]
    key: str = ""
    on_busy: str = ""


@dataclass(frozen=True, slots=True)
class Past:
    """A post of before, and what the model answered; nothing, if it was not asked."""

    post: Post
    replies: Sequence[Reply] = ()


def past(*lines: str, then: Reply | Sequence[Reply] = (), key: str = "") -> Past:
    return Past(Post(lines, key), [then] if isinstance(then, Reply) else then)


def call_of(*names: str) -> Reply:
    """An answer that calls these tools; its ids are those of every other such answer."""
    each = [(f"call_{at}", name, ARGUMENTS.get(name, "{}")) for at, name in enumerate(names)]
    return calls(*each)


# ---------------------------------------------------------------- parts of tables
SUPERSEDED = "Error: The user went on before this call was answered."
"""Result that a model gets for a call that a message went past."""
PAID = "price: 3 euros"
GO = ["user: go", "assistant: -> zone, color"]
OWING = [past("user: go", then=call_of("zone", "color"))]


@dataclass(frozen=True, slots=True)
class Row:
    """A post that comes when nothing runs.

    Args:
        given: what came before.
        post: what it brings.
        answer: see `Stage.seen`.
        adds: to the history; a run that begins also adds what the model says.
        asks: what the model is shown by the run that begins.
    """

    given: Sequence[Past]
    post: Post
    answer: str
    adds: Sequence[str] = ()
    asks: Sequence[str] = ()


def row(given: Sequence[Past], *lines: str, is_: str, key: str = "") -> Row:
    """A row that changes nothing."""
    return Row(given, Post(lines, key), is_)


def begins(given: Sequence[Past], *lines: str, adds: Sequence[str], asks: Sequence[str]) -> Row:
    return Row(given, Post(lines), "runs", adds, asks)


class Stage:
    """One conversation.

    Attributes:
        runs: those that began by the posts so far.
        calls: their ids by the names of their tools, where the history does not tell them.
    """

    def __init__(self, model: ModelServer, pair: tuple[Client, Client], conversation: str) -> None:
        self.model = model
        self.conversation = conversation
        self.runs: list[str] = []
        self.calls: dict[str, str] = {}
        self._looks = pair[0]
        self._clients = itertools.cycle(pair)

    async def lead(self, *before: Past) -> None:
        """Lead the conversation to its state after these posts."""
        for each in before:
            self.model.play(*each.replies)
            answer = await self.post(each.post)
            assert answer.status == 200, answer.body
            assert len(self.model.requests) == len(each.replies)
            if "x-run-id" in answer.headers:
                self.runs.append(answer.headers["x-run-id"])

    async def call_elsewhere(self, tool: str = "zone") -> None:
        """Let another conversation owe an answer, for posts here: `foreign: ...` and so on."""
        self.model.play(call_of(tool))
        elsewhere = f"{self.conversation}-2"
        words = [posted("user: go", {})]
        answer = await next(self._clients).post(elsewhere, *words, tools=TOOLS)
        begun = next(frame for frame in answer.frames if frame.type == "tool-call-start")
        self.calls["foreign"] = begun.event["toolCallId"]

    async def post(self, post: Post) -> Answer:
        async with await self.posting(post) as stream:
            return await stream.whole()

    async def posting(self, post: Post) -> AbstractAsyncContextManager[Stream]:
        """Post to the worker whose turn it is."""
        client = next(self._clients)
        names = names_of(await self.messages())
        ids = {name: call_id for call_id, name in names.items()} | self.calls
        answers = [answer for line in post.lines if (answer := resumed(line, ids))]
        messages = [posted(line, ids) for line in post.lines if not resumed(line, ids)]
        more: Json = {"headers": keyed(post.key)} if post.key else {}
        more |= {"resume": answers} if answers else {}
        more |= {"onBusy": post.on_busy} if post.on_busy else {}
        return client.stream(self.conversation, messages, tools=TOOLS, include=INCLUDE, **more)

    async def messages(self) -> list[Json]:
        found = await self._looks.conversation(self.conversation)
        messages: list[Json] = found.get("messages", [])
        return messages

    async def history(self) -> list[str]:
        return history(await self.messages())

    async def owed(self) -> list[str]:
        """The tools whose calls are owed."""
        found = await self._looks.conversation(self.conversation)
        return [each["name"] for each in found.get("owed", [])]

    async def play(self, what: Row) -> None:
        """Lead to where a row begins, post what it posts, and see what becomes of it."""
        await self.lead(*what.given)
        before, owed = await self.history(), await self.owed()
        self.model.play(says("good"))
        answer = await self.post(what.post)
        assert self.seen(answer) == what.answer
        ran = what.answer == "runs"
        assert self.asked() == ([what.asks] if ran else [])
        assert await self.history() == [*before, *what.adds, *(["assistant: good"] if ran else [])]
        if what.adds:
            left = what.answer.removeprefix("owes ").split(", ")
            owed = [name for name in owed if name in left]
        assert await self.owed() == owed

    def asked(self) -> list[list[str]]:
        """Return what the model was shown, each time since the last `play`."""
        return [asked(request.shown) for request in self.model.requests]

    def seen(self, answer: Answer) -> str:
        """Describe an answer: `runs`, `waits, runs`, `joins 1`, `owes zone`, or status and code."""
        if answer.status != 200:
            return f"{answer.status} {answer.json['code']}"
        if "x-run-id" not in answer.headers:
            assert answer.types == ["owed", DONE]
            owed = answer.frames[0].event["toolCalls"]
            assert answer.headers["x-owed-tool-calls"] == ",".join(each["id"] for each in owed)
            return f"owes {', '.join(each['name'] for each in owed)}"
        if answer.headers["x-run-id"] in self.runs:
            return f"joins {self.runs.index(answer.headers['x-run-id']) + 1}"
        waited = answer.types[:1] == ["run-queued"]
        # what was allowed is made first
        types = [
            kind for kind in answer.types[waited:] if kind not in {"tool-call-end", "tool-result"}
        ]
        assert types == ["run-start", "text", "run-end", DONE]
        return "waits, runs" if waited else "runs"


def outcome_of(answer: Answer) -> str:
    """Return how the run of an answer ended."""
    assert answer.types[-2:] == ["run-end", DONE]
    return str(answer.frames[-2].event["outcome"])
