"""`ask_user`: its written-out schema is its model's, and an answer has to fit its questions."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import JsonValue, ValidationError

from passback.core.errors import InvalidAnswer
from passback.core.messages import (
    CallId,
    Content,
    DataPart,
    MediaPart,
    MessageId,
    TextPart,
    ToolMessage,
)
from passback.core.questions import ASK_USER, Questions, check_question_answer, find_question_flaw

JUDGE = Draft202012Validator(dict(ASK_USER.parameters))


def fits_the_model(arguments: object) -> bool:
    try:
        Questions.model_validate_json(json.dumps(arguments))
    except ValidationError:
        return False
    return True


# ---------------------------------------------------------------- the schema and the model
def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(ASK_USER.parameters)


ODD: st.SearchStrategy[Any] = st.sampled_from([None, True, 0, 1.0, "", "text", [], ["text"], {}])


def mostly(good: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """One in eight is odd."""
    return st.integers(0, 7).flatmap(lambda number: good if number else ODD)


def some_of(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """An object with any of these fields, and seldom with one that is not known."""
    known = {name: mostly(each) for name, each in fields.items()}
    return mostly(
        st.fixed_dictionaries({}, optional={**known, **dict.fromkeys(["free_text", "x"], ODD)})
    )


def required(name: str, given: st.SearchStrategy[Any], **others: Any) -> st.SearchStrategy[Any]:
    optional = {each: mostly(strategy) for each, strategy in others.items()}
    return mostly(st.fixed_dictionaries({name: mostly(given)}, optional=optional))


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
OPTION = required("label", TEXT, description=TEXT)
QUESTION = required(
    "question",
    TEXT,
    header=TEXT,
    options=st.lists(OPTION, max_size=2),
    multiple=st.booleans(),
    freeText=st.booleans(),
)
ARGUMENTS = required("questions", st.lists(st.one_of(QUESTION, some_of(question=TEXT)), max_size=3))


@given(ARGUMENTS)
def test_what_the_model_of_the_questions_takes_is_what_their_schema_takes(arguments: Any) -> None:
    assert fits_the_model(arguments) is JUDGE.is_valid(arguments)


def asking(**question: object) -> dict[str, Any]:
    return {"questions": [{"question": "?", **question}]}


def options(*labels: str) -> list[dict[str, str]]:
    return [{"label": label} for label in labels]


LIMITS: list[tuple[dict[str, Any], bool]] = [
    ({"questions": [{"question": "?"}] * 10}, True),
    ({"questions": [{"question": "?"}] * 11}, False),
    ({"questions": []}, False),
    (asking(question="x" * 4000), True),
    (asking(question="😀" * 4000), True),
    (asking(question="x" * 4001), False),
    (asking(header="x" * 80), True),
    (asking(header="x" * 81), False),
    (asking(header=""), False),
    (asking(options=options(*"x" * 20)), True),
    (asking(options=options(*"x" * 21)), False),
    (asking(options=options("x" * 400)), True),
    (asking(options=options("x" * 401)), False),
    (asking(options=[{"label": "x", "description": "x" * 4000}]), True),
    (asking(options=[{"label": "x", "description": "x" * 4001}]), False),
    (asking(options=[{"label": "x", "description": ""}]), False),
    (asking(multiple=True, freeText=False), True),
    (asking(free_text=False), False),
]


@pytest.mark.parametrize(("arguments", "fits"), LIMITS)
def test_the_schema_and_its_model_have_the_same_limits(
    arguments: dict[str, Any], fits: bool
) -> None:
    assert (fits_the_model(arguments), JUDGE.is_valid(arguments)) == (fits, fits)


# ---------------------------------------------------------------- unanswerable questions
SAME = "another option of this question has the same label"
NOTHING = "it is false, and there are no options: nothing could be answered"
FLAWS: dict[str, tuple[dict[str, Any], str | None]] = {
    "one option twice": (asking(options=options("a", "b", "a")), f"options[2].label: {SAME}"),
    "labels that look the same": (
        asking(options=options("a  b", " a b")),
        f"options[1].label: {SAME}",
    ),
    "labels that look almost the same": (asking(options=options("a", "A")), None),
    "no options and no words": (asking(freeText=False), f"freeText: {NOTHING}"),
    "an empty list of options": (asking(options=[], freeText=False), f"freeText: {NOTHING}"),
    "options alone": (asking(options=options("a"), freeText=False), None),
    "words alone": (asking(), None),
}


@pytest.mark.promise("P4")
@pytest.mark.parametrize(("arguments", "flaw"), FLAWS.values(), ids=FLAWS)
def test_a_flaw_of_a_question_is_named_with_its_place(
    arguments: dict[str, Any], flaw: str | None
) -> None:
    expected = None if flaw is None else f"at $.questions[1].{flaw}"
    two = {"questions": [{"question": "first"}, *arguments["questions"]]}
    assert find_question_flaw(json.dumps(two)) == expected


def test_labels_are_compared_within_one_question() -> None:
    assert (
        find_question_flaw(json.dumps({"questions": asking(options=options("a"))["questions"] * 2}))
        is None
    )


def test_what_are_no_questions_cannot_be_answered_either() -> None:
    assert find_question_flaw('{"questions": ["?"]}') == "questions.0: Input should be an object"


# ---------------------------------------------------------------- answers
COLORS = options("blue", "green")
FREE = asking(options=COLORS)
ONE = asking(options=COLORS, freeText=False)
SEVERAL = asking(options=COLORS, freeText=False, multiple=True)
WORDS = asking()
TWO = {"questions": [*FREE["questions"], *WORDS["questions"]]}


def answers(*given: JsonValue) -> Content:
    return (DataPart({"answers": list(given)}),)


def check(questions: object, content: Content, *, is_error: bool = False) -> None:
    message = ToolMessage(MessageId("t"), CallId("c"), content, is_error)
    check_question_answer(json.dumps(questions), message)


FIT: dict[str, tuple[object, Content]] = {
    "one of the options": (ONE, answers({"selected": ["blue"]})),
    "several of them": (SEVERAL, answers({"selected": ["green", "blue"]})),
    "words instead of an option": (FREE, answers({"text": "red"})),
    "words beside an option": (FREE, answers({"selected": ["blue"], "text": "a dark one"})),
    "words, where there is nothing to choose": (WORDS, answers({"text": "Sky"})),
    "words where only options are, but there are none": (
        asking(freeText=False),
        answers({"text": "Sky"}),
    ),
    "an option by its words": (ONE, answers({"text": "blue"})),
    "a text for the only question": (WORDS, "Sky"),
    "a text that names the option": (ONE, "green"),
    "nothing: skipped": (ONE, answers({})),
    "no text: skipped": (ONE, ""),
    "all skipped": (TWO, answers({}, {"selected": [], "text": ""})),
    "an answer to each": (TWO, answers({"selected": ["blue"]}, {"text": "Sky"})),
    "as many words as there may be": (WORDS, "x" * 100_000),
}


@pytest.mark.parametrize(("questions", "content"), FIT.values(), ids=FIT)
def test_an_answer_that_fits_is_taken(questions: object, content: Content) -> None:
    check(questions, content)


UNFIT: dict[str, tuple[object, Content, str]] = {
    "none of the options": (ONE, answers({"selected": ["red"]}), "answers.0: what is selected"),
    "an option of another spelling": (ONE, answers({"selected": ["Blue"]}), "none of the options"),
    "an option where there are none": (WORDS, answers({"selected": ["blue"]}), "none of the"),
    "two where one can be chosen": (ONE, answers({"selected": ["blue", "green"]}), "only one"),
    "the same twice": (SEVERAL, answers({"selected": ["blue", "blue"]}), "selected twice"),
    "words where only options are": (ONE, answers({"text": "red"}), "only options"),
    "another option by its words": (
        ONE,
        answers({"selected": ["blue"], "text": "green"}),
        "only options",
    ),
    "a text where only options are": (ONE, "red", "answers.0: only options"),
    "too few answers": (TWO, answers({}), "give one answer to each question: 2 expected, 1 given"),
    "too many answers": (
        ONE,
        answers({}, {}),
        "give one answer to each question: 1 expected, 2 given",
    ),
    "one of two": (TWO, answers({}, {"selected": ["x"]}), "answers.1: "),
    "a text for two questions": (TWO, "Sky", "a plain text answers one question"),
    "JSON that is no object": (ONE, (DataPart(["blue"]),), "the answer: Input should be an object"),
    "an object without answers": (ONE, (DataPart({}),), "answers: "),
    "an answer that is a text": (ONE, answers("blue"), "answers.0: Input should be an object"),
    "an option that is a number": (ONE, answers({"selected": [1]}), "answers.0.selected.0: "),
    "a choice that is no list": (ONE, answers({"selected": "blue"}), "answers.0.selected: "),
    "a key that is not known": (ONE, answers({"label": "blue"}), "answers.0.label: "),
    "more answers than there can be": (ONE, answers(*[{}] * 11), "answers: "),
    "more options than there can be": (
        ONE,
        answers({"selected": ["blue"] * 21}),
        "answers.0.selected: ",
    ),
    "a text that is too long": (WORDS, "x" * 100_001, "answers.0.text: "),
    "words that are too long": (WORDS, answers({"text": "x" * 100_001}), "answers.0.text: "),
    "a text as a part": (WORDS, (TextPart("Sky"),), 'by {"answers": [...]}'),
    "an image": (WORDS, (MediaPart("image", "https://x/"),), 'by {"answers": [...]}'),
    "two parts": (ONE, (*answers({}), *answers({})), 'by {"answers": [...]}'),
    "no part": (ONE, (), 'by {"answers": [...]}'),
}


@pytest.mark.promise("P12")
@pytest.mark.parametrize(("questions", "content", "expected"), UNFIT.values(), ids=UNFIT)
def test_an_answer_that_does_not_fit_is_refused_with_its_place(
    questions: object, content: Content, expected: str
) -> None:
    with pytest.raises(InvalidAnswer) as raised:
        check(questions, content)
    assert expected in raised.value.message
    assert len(raised.value.message) < 200


@pytest.mark.parametrize("content", ["", "I would rather not", (TextPart("no"),), answers(1, 2, 3)])
def test_a_person_who_declines_to_answer_may_give_any_text(content: Content) -> None:
    check(TWO, content, is_error=True)


def test_answers_may_be_posted_as_their_json_text() -> None:
    check(TWO, '{"answers": [{"selected": ["blue"]}, {"text": "Sky"}]}')
    check(WORDS, '{"answers": [{"text": "Sky"}]}')
    check(WORDS, '{"these": "are words"}')
    with pytest.raises(InvalidAnswer, match=r"answers\.0"):
        check(ONE, '{"answers": [{"selected": ["red"]}]}')
    with pytest.raises(InvalidAnswer, match="a plain text answers one question"):
        check(TWO, "[1]")
