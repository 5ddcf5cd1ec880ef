"""`ask_user`, the client tool that asks the user: its schema, and the check of answers. Pure."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Final, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import from_json

from passback.core.errors import InvalidAnswer
from passback.core.messages import Content, DataPart, ToolMessage, ToolSpec
from passback.core.text import describe_validation_error

_LongText: TypeAlias = Annotated[str, Field(min_length=1, max_length=4000)]
_Label: TypeAlias = Annotated[str, Field(min_length=1, max_length=400)]


class _StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, alias_generator=to_camel)


class Option(_StrictModel):
    label: _Label
    description: _LongText = ""


class Question(_StrictModel):
    """One question, answered by an option, by several if `multiple`, or in the user's own words.

    `free_text` allows own words beside options. `header` is a short title; empty if it has none.
    """

    question: _LongText
    header: Annotated[str, Field(min_length=1, max_length=80)] = ""
    options: Annotated[list[Option], Field(max_length=20)] = []
    multiple: bool = False
    free_text: bool = True


class Questions(_StrictModel):
    """The arguments of a call of `ask_user`."""

    questions: Annotated[list[Question], Field(min_length=1, max_length=10)]


class Answer(_StrictModel):
    """The answer to one question; skipped if it has neither options nor text."""

    selected: Annotated[list[_Label], Field(max_length=20)] = []
    text: Annotated[str, Field(max_length=100_000)] = ""


class Answers(_StrictModel):
    """The result of a call of `ask_user`: one answer per question, in their order."""

    answers: Annotated[list[Answer], Field(max_length=10)]


# Written out rather than generated: models read plain schemas best. A test compares it with
# `Questions`.
ASK_USER: Final = ToolSpec(
    "ask_user",
    "Ask the user, who sees the questions as a form. Use it when you cannot go on without "
    "knowing; offer options where you can. The answers come in the order of the questions; "
    "an empty one was skipped.",
    {
        "type": "object",
        "properties": {
            "questions": {
                "type": "array",
                "minItems": 1,
                "maxItems": 10,
                "items": {
                    "type": "object",
                    "properties": {
                        "question": {"type": "string", "minLength": 1, "maxLength": 4000},
                        "header": {
                            "type": "string",
                            "minLength": 1,
                            "maxLength": 80,
                            "description": "A title of a few words.",
                        },
                        "options": {
                            "type": "array",
                            "maxItems": 20,
                            "description": "Each with a label of its own.",
                            "items": {
                                "type": "object",
                                "properties": {
                                    "label": {"type": "string", "minLength": 1, "maxLength": 400},
                                    "description": {
                                        "type": "string",
                                        "minLength": 1,
                                        "maxLength": 4000,
                                    },
                                },
                                "required": ["label"],
                                "additionalProperties": False,
                            },
                        },
                        "multiple": {
                            "type": "boolean",
                            "description": "Several options may be chosen. Default: false.",
                        },
                        "freeText": {
                            "type": "boolean",
                            "description": (
                                "Words of the user's own are fine, too. "
                                "Default: true; false only with options."
                            ),
                        },
                    },
                    "required": ["question"],
                    "additionalProperties": False,
                },
            }
        },
        "required": ["questions"],
        "additionalProperties": False,
    },
)


def find_question_flaw(arguments: str, /) -> str | None:
    """Return why the questions of a call cannot be answered, for the model; None if they can."""
    try:
        questions = Questions.model_validate_json(arguments).questions
    except ValidationError as error:
        return _first_error(error, "the arguments")
    # what the schema cannot express
    for number, question in enumerate(questions):
        place = f"at $.questions[{number}]"
        if not (question.options or question.free_text):
            flaw = "it is false, and there are no options: nothing could be answered"
            return f"{place}.freeText: {flaw}"
        labels = [" ".join(option.label.split()) for option in question.options]
        for at, label in enumerate(labels):
            if label in labels[:at]:
                flaw = "another option of this question has the same label"
                return f"{place}.options[{at}].label: {flaw}"
    return None


def check_question_answer(arguments: str, answer: ToolMessage, /) -> None:
    """Check that an answer fits the questions of a call.

    Raises:
        InvalidAnswer: names the answer that does not fit, and says why.
    """
    if answer.is_error:
        return  # the user declined to answer
    questions = Questions.model_validate_json(arguments).questions
    answers = _parse_answers(answer.content, len(questions))
    if len(answers) != len(questions):
        raise InvalidAnswer(
            f"give one answer to each question: {len(questions)} expected, {len(answers)} given"
        )
    for position, (question, given) in enumerate(zip(questions, answers, strict=True)):
        if problem := find_answer_problem(question, given):
            raise InvalidAnswer(f"answers.{position}: {problem}")


def _parse_answers(content: Content, asked: int) -> Sequence[Answer]:
    match content:
        case str():
            # clients that can post text only write answers as JSON; any other text is plain words
            given: JsonValue = None
            with suppress(ValueError):
                given = from_json(content)
            if not (isinstance(given, dict) and "answers" in given):
                if asked != 1:
                    raise InvalidAnswer("a plain text answers one question, and there are several")
                given = {"answers": [{"text": content}]}
        case (DataPart(given),):
            pass
        case _:
            raise InvalidAnswer('questions are answered by {"answers": [...]}, or one by a text')
    try:
        return Answers.model_validate(given).answers
    except ValidationError as error:
        raise InvalidAnswer(_first_error(error, "the answer")) from None


def _first_error(error: ValidationError, whole: str) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(step) for step in first["loc"]) or whole
    return f"{place}: {describe_validation_error(first)}"


def find_answer_problem(question: Question, answer: Answer, /) -> str | None:
    """Return why an answer does not fit its question, or None if it does."""
    labels = [option.label for option in question.options]
    if any(label not in labels for label in answer.selected):
        return "what is selected is none of the options"
    if len(answer.selected) > 1 and not question.multiple:
        return "only one option can be selected"
    if len(set(answer.selected)) < len(answer.selected):
        return "an option is selected twice"
    allows_text = not labels or question.free_text
    # a client that can post text only may give a label as text
    if answer.text and not allows_text and (answer.selected or answer.text not in labels):
        return "only options can be chosen here"
    return None
