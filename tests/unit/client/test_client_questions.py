"""Questions of the agent: how they are offered, what the function gets, and what is posted; against a scripted server."""

import json
from collections.abc import Sequence
from typing import Any

import anyio
import httpx
import pytest
from tests.support.python_client import DONE, Script, frame, owes, stream

from passback_client import BadSetup, Client, Option, Question, Reply, ToolError
from passback_client import sync as plain

pytestmark = pytest.mark.anyio

ARGUMENTS: dict[str, Any] = {
    "questions": [
        {"question": "Which city?"},
        {
            "question": "Which days?",
            "options": [{"label": "Sat", "description": "the 6th"}, {"label": "Sun"}],
            "multiple": True,
        },
        {"question": "Sure?", "options": [{"label": "Yes"}, {"label": "No"}], "freeText": False},
    ]
}
QUESTIONS = [
    Question("Which city?"),
    Question("Which days?", (Option("Sat", "the 6th"), Option("Sun")), multiple=True),
    Question("Sure?", (Option("Yes"), Option("No")), free_text=False),
]
SKIPPED = Reply()


def asks(arguments: Any = ARGUMENTS) -> httpx.Response:
    call = {"id": "call", "name": "ask_user", "kind": "question"}
    return owes(call | {"arguments": json.dumps(arguments)})


def hello() -> httpx.Response:
    return stream(frame("next.1-2", type="text", content="Done."), DONE, run="next")


async def answered(function: Any, arguments: Any = ARGUMENTS) -> tuple[Any, bool]:
    """What is posted: the content, and whether it is an error."""
    script = Script(asks(arguments), hello())
    with anyio.fail_after(10):
        async with Client("http://host", transport=script.transport, claims=False) as client:
            assert client.questions(function) is function
            assert (await client.ask("hi")).text == "Done."
    assert script.bodies[0]["tools"] == [{"name": "ask_user"}]
    [message] = script.bodies[1]["messages"]
    assert (message["role"], message["toolCallId"]) == ("tool", "call")
    return message["content"], message.get("isError", False)


async def test_a_function_is_given_questions_and_its_replies_are_posted() -> None:
    seen: list[Question] = []

    async def ask(questions: Sequence[Question]) -> Sequence[Reply]:
        seen.extend(questions)
        return Reply(text="Ulm"), Reply(("Sat", "Sun"), "or Monday"), Reply(text="Yes")

    answers = [{"text": "Ulm"}, {"selected": ["Sat", "Sun"], "text": "or Monday"}, {"text": "Yes"}]
    assert await answered(ask) == ({"answers": answers}, False)
    assert seen == QUESTIONS


def test_the_plain_client_asks_too_and_once_only() -> None:
    script = Script(asks(), hello())
    how: Any = {"transport": script.transport, "claims": False}
    with plain.Client("http://host", **how) as client:

        @client.questions
        def ask(questions: Sequence[Question]) -> list[Reply]:
            return [SKIPPED for _ in questions]

        with pytest.raises(BadSetup, match="ask_user"):
            client.questions(ask)
        assert client.ask("hi").text == "Done."
    assert script.bodies[1]["messages"][0]["content"] == {"answers": [{}, {}, {}]}


@pytest.mark.parametrize(
    ("replies", "told"),
    [
        ([Reply(("Ulm",))], "'Which city?' does not fit: there is no option 'Ulm'"),
        ([SKIPPED, Reply(("Mon",))], "'Which days?' does not fit: there is no option 'Mon'"),
        ([SKIPPED, Reply(("Sat", "Sat"))], "'Which days?' does not fit: an option is there twice"),
        ([SKIPPED, SKIPPED, Reply(("Yes", "No"))], "'Sure?' does not fit: only one option can be"),
        ([SKIPPED, SKIPPED, Reply(text="Hm")], "'Sure?' does not fit: only options can be chosen"),
        ([Reply(text="a" * 100_001)], "'Which city?' does not fit: it is too long"),
        ([SKIPPED, SKIPPED, "Yes"], "A question was answered by a str."),
    ],
)
async def test_replies_that_do_not_fit_are_told_to_the_model(replies: list[Any], told: str) -> None:
    content, is_error = await answered(lambda _: (replies + [SKIPPED] * 3)[:3])
    assert told in content
    assert is_error


@pytest.mark.parametrize(
    ("given", "told"),
    [([SKIPPED], "3 questions got 1 answers."), (None, "were answered by a NoneType.")],
    ids=["too few", "none"],
)
async def test_there_is_a_reply_to_each_question(given: Any, told: str) -> None:
    content, is_error = await answered(lambda _: given)
    assert (told in content, is_error) == (True, True)


async def test_a_user_may_answer_nothing() -> None:
    def ask(_: object) -> list[Reply]:
        raise ToolError("The user went home.")

    assert await answered(ask) == ("The user went home.", True)


async def test_questions_that_are_none_are_told_to_the_model() -> None:
    content, is_error = await answered(lambda _: [], {"questions": [{}]})
    assert (content, is_error) == ("BadAnswer: the server sent no text 'question'", True)
