"""A model's service whose answers tell by themselves which call of the model each of their words came from.

It does what the last user message orders: `<token>: <n> words, <ms> ms`, and `, then <tool>` for a call of that tool
behind the words; told its result, it says the words again. The answer is `re <token>: 7.1 7.2 ... 7.n 7.end`, where 7 counts the calls of the model: an answer that was put
together from two of them, or lost a word, shows it.
"""

import re
from collections import Counter
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from tests.support.model_server import (
    DONE,
    Json,
    ModelServer,
    Reply,
    Request,
    Step,
    calls,
    event,
    listening,
    says,
)
from typing_extensions import override

if TYPE_CHECKING:
    import anyio

ORDER = re.compile(
    r"(?P<token>[\w-]+): (?P<words>\d+) words, (?P<pace>\d+) ms(?:, then (?P<tool>\w+))?"
)


def order(token: str, words: int = 20, pace: int = 10, tool: str = "") -> str:
    """What to post, so that the answer has so many words, `pace` milliseconds apart."""
    return f"{token}: {words} words, {pace} ms{tool and f', then {tool}'}"


class TracedModel(ModelServer):
    """See the module's text.

    Attributes:
        asked: how often the model was called for each token.
        seen: the tokens of all user messages that each call was shown, in their order.
        gates: an answer to a token that is here waits after its first words until the event is set.
    """

    def __init__(self) -> None:
        super().__init__(())
        self.asked: Counter[str] = Counter()
        self.seen: dict[int, tuple[str, ...]] = {}
        self.gates: dict[str, anyio.Event] = {}

    @override
    def _answer_to(self, request: Request) -> Reply:
        messages = request.shown
        orders = [found for message in messages if (found := order_in(message))]
        if not orders:
            return says("nothing was ordered")
        number = len(self.seen) + 1
        self.seen[number] = tuple(each["token"] for each in orders)
        token = orders[-1]["token"]
        self.asked[token] += 1
        return self._answer(orders[-1], number, told=messages[-1]["role"] == "tool")

    def _answer(self, found: re.Match[str], number: int, *, told: bool) -> Reply:
        token, pace = found["token"], int(found["pace"]) / 1000
        steps: list[Step] = [event(content=f"re {token}: ")]
        if token in self.gates:
            steps.append(self.gates[token])
        for index in range(1, int(found["words"]) + 1):
            steps += [pace, event(content=f"{number}.{index} ")]
        steps.append(event(content=f"{number}.end"))
        if found["tool"] and not told:
            call = calls((f"call-{number}", found["tool"], '{"what": "anything"}'))
            return Reply([*steps, *call.steps])
        return Reply([*steps, event("stop"), DONE])


def order_in(message: Json) -> re.Match[str] | None:
    """The order that a user message holds."""
    content = message.get("content")
    if message.get("role") != "user" or not isinstance(content, str):
        return None
    return ORDER.fullmatch(content)


def traced_model() -> AbstractAsyncContextManager[TracedModel]:
    """Give a traced model that listens; see `listening`."""
    return listening(TracedModel())
