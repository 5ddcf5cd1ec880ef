"""A model's service whose answers show which model call each of their words came from.

It does what the prompt in the last user message says: `<token>: <n> words, <ms> ms`, and
`, then <tool>` for a call of that tool after the words; after the tool's result it says the words
again. The answer is `re <token>: 7.1 7.2 ... 7.n 7.end`, where 7 counts the model calls, so an
answer that lost a word, or was mixed from two model calls, is recognised.
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

PROMPT = re.compile(
    r"(?P<token>[\w-]+): (?P<words>\d+) words, (?P<delay>\d+) ms(?:, then (?P<tool>\w+))?"
)


def prompt(token: str, words: int = 20, delay: int = 10, tool: str = "") -> str:
    """Return the prompt of an answer with so many words, `delay` milliseconds apart."""
    return f"{token}: {words} words, {delay} ms{tool and f', then {tool}'}"


def match_prompt(message: Json) -> re.Match[str] | None:
    """Return the parts of the prompt in a user message."""
    content = message.get("content")
    if message.get("role") != "user" or not isinstance(content, str):
        return None
    return PROMPT.fullmatch(content)


class MockModel(ModelServer):
    """The service: use `mock_model`.

    Attributes:
        call_counts: how often the model was called for each token.
        tokens_shown: the tokens of all user messages that each model call was shown, in order.
        gates: an answer to a token in here waits after its first words until the event is set.
        word_gates: an answer to a token in here waits for one of these events before each word.
    """

    def __init__(self) -> None:
        super().__init__(())
        self.call_counts: Counter[str] = Counter()
        self.tokens_shown: dict[int, tuple[str, ...]] = {}
        self.gates: dict[str, anyio.Event] = {}
        self.word_gates: dict[str, list[anyio.Event]] = {}

    @override
    def _answer_to(self, request: Request) -> Reply:
        messages = request.shown
        prompts = [found for message in messages if (found := match_prompt(message))]
        if not prompts:
            return says("there is no prompt")
        number = len(self.tokens_shown) + 1
        self.tokens_shown[number] = tuple(each["token"] for each in prompts)
        token = prompts[-1]["token"]
        self.call_counts[token] += 1
        return self._write_answer(prompts[-1], number, after_tool=messages[-1]["role"] == "tool")

    def _write_answer(self, found: re.Match[str], number: int, *, after_tool: bool) -> Reply:
        token, delay = found["token"], int(found["delay"]) / 1000
        steps: list[Step] = [event(content=f"re {token}: ")]
        if token in self.gates:
            steps.append(self.gates[token])
        gates = self.word_gates.get(token)
        for index in range(1, int(found["words"]) + 1):
            wait = gates[index - 1] if gates else delay
            steps += [wait, event(content=f"{number}.{index} ")]
        steps.append(event(content=f"{number}.end"))
        if found["tool"] and not after_tool:
            call = calls((f"call-{number}", found["tool"], '{"what": "anything"}'))
            return Reply([*steps, *call.steps])
        return Reply([*steps, event("stop"), DONE])


def mock_model() -> AbstractAsyncContextManager[MockModel]:
    """Give a mock model that listens; see `listening`."""
    return listening(MockModel())
