"""Questions to the editor's user: permission for a call, and those of `ask_user`."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from pydantic import JsonValue

from passback.core.errors import InvalidAnswer
from passback.core.messages import UNNAMED, DataPart, Owed, ToolMessage
from passback.core.questions import Option, Question, Questions, check_question_answer
from passback.streams.jsonrpc import ConnectionLost, Peer, RpcError
from passback.wire.acp.updates import Update, short_title, text_content

Decision: TypeAlias = Literal["allow_once", "allow_always", "reject_once", "reject_always"]

_OPTIONS: Final[Mapping[Decision, str]] = {
    "allow_once": "Allow",
    "allow_always": "Always allow {}",
    "reject_once": "Reject",
    "reject_always": "Always reject {}",
}
_DECLINED: Final = "The user declined to answer."


class PromptCancelled(Exception):
    """The user has cancelled the prompt where a permission was asked for."""


async def ask_permission(
    peer: Peer, session_id: str, view: Update, /, subject: str = "in this session"
) -> Decision:
    """Ask whether a call may be made. What is no answer is a rejection.

    Args:
        peer: the editor.
        session_id: the session.
        view: the call as it is shown.
        subject: of a decision that lasts, behind "Always allow".

    Raises:
        PromptCancelled: the prompt is being cancelled.
        ConnectionLost: the editor is gone.
    """
    options: list[JsonValue] = [
        {"optionId": kind, "name": name.format(subject), "kind": kind}
        for kind, name in _OPTIONS.items()
    ]
    chosen = await _choose(peer, session_id, view, options)
    known: Sequence[Decision] = [kind for kind in _OPTIONS if kind == chosen]
    return known[0] if known else "reject_once"


async def _choose(
    peer: Peer, session_id: str, view: Update, options: list[JsonValue]
) -> str | None:
    """Return the id of the option that was selected; None if there is none."""
    parameters: JsonValue = {"sessionId": session_id, "toolCall": view, "options": options}
    try:
        answer = await peer.call("session/request_permission", parameters)
    except ConnectionLost:
        raise
    except RpcError:
        return None
    outcome = answer.get("outcome") if isinstance(answer, dict) else None
    if not isinstance(outcome, dict):
        return None
    if outcome.get("outcome") == "cancelled":
        raise PromptCancelled
    chosen = outcome.get("optionId")
    return chosen if outcome.get("outcome") == "selected" and isinstance(chosen, str) else None


async def ask_user(
    peer: Peer, session_id: str, owed: Owed, view: Update, /, *, by_form: bool
) -> ToolMessage | None:
    """Ask the questions of a call, and return the answers.

    Args:
        peer: the editor.
        session_id: the session.
        owed: the call.
        view: the call as the editor knows it.
        by_form: the editor shows forms (elicitation).

    Returns:
        The answers; None if the editor can ask in text only.

    Raises:
        PromptCancelled: the prompt is being cancelled.
        ConnectionLost: the editor is gone.
    """
    questions = Questions.model_validate_json(owed.arguments).questions
    if by_form:
        answers = await _ask_by_form(peer, session_id, owed, questions)
    elif is_choice(owed):
        answers = await _ask_by_options(peer, session_id, view, questions[0])
    else:
        return None
    if answers is not None:
        message = ToolMessage(UNNAMED, owed.id, (DataPart({"answers": answers}),))
        if fits_questions(owed, message):
            return message
    return ToolMessage(UNNAMED, owed.id, _DECLINED, is_error=True)


def fits_questions(owed: Owed, answer: ToolMessage, /) -> bool:
    """Return whether an answer fits the questions of a call."""
    try:
        check_question_answer(owed.arguments, answer)
    except InvalidAnswer:
        return False
    return True


def question_text(owed: Owed, /) -> str:
    """Return the questions of a call as text, where nothing else can ask them."""
    lines: list[str] = []
    for question in Questions.model_validate_json(owed.arguments).questions:
        lines.append(question.question)
        lines += [
            f"- {option.label}{f': {option.description}' if option.description else ''}"
            for option in question.options
        ]
    return "\n".join(lines)


def is_choice(owed: Owed, /) -> bool:
    """Return whether the options of a permission can ask a call's question: it has one choice."""
    questions = Questions.model_validate_json(owed.arguments).questions
    return len(questions) == 1 and bool(questions[0].options) and not questions[0].multiple


async def _ask_by_options(
    peer: Peer, session_id: str, view: Update, question: Question
) -> JsonValue:
    """Ask one question by the options of a permission."""
    options: list[JsonValue] = [
        {"optionId": str(at), "name": option.label, "kind": "allow_once"}
        for at, option in enumerate(question.options)
    ]
    options.append({"optionId": "none", "name": "None of these", "kind": "reject_once"})
    asked = {"title": short_title(question.question), "content": text_content(question.question)}
    chosen = await _choose(peer, session_id, {**view, **asked}, options)
    labels = {str(at): option.label for at, option in enumerate(question.options)}
    return [{"selected": [labels[chosen]]}] if chosen in labels else None


async def _ask_by_form(
    peer: Peer, session_id: str, owed: Owed, questions: Sequence[Question]
) -> JsonValue:
    """Ask by a form; return the answers, None if it was declined."""
    properties: dict[str, JsonValue] = {}
    for at, question in enumerate(questions):
        properties |= _form_fields(f"q{at}", question)
    message = questions[0].question if len(questions) == 1 else "The agent has questions."
    parameters: JsonValue = {
        "mode": "form",
        "sessionId": session_id,
        "toolCallId": owed.id,
        "message": message,
        "requestedSchema": {"type": "object", "properties": properties},
    }
    try:
        answer = await peer.call("elicitation/create", parameters)
    except ConnectionLost:
        raise
    except RpcError:
        return None
    given = answer.get("content") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or answer.get("action") != "accept":
        return None
    filled = given if isinstance(given, dict) else {}
    return [_read_field(filled, f"q{at}", question) for at, question in enumerate(questions)]


def _form_fields(name: str, question: Question) -> dict[str, JsonValue]:
    """Return the fields of one question: its options, and one for words of the user's own."""
    titled: dict[str, Any] = {"title": short_title(question.header or question.question)}
    if titled["title"] != question.question:
        titled["description"] = question.question
    options = [{"const": each.label, "title": _option_title(each)} for each in question.options]
    if not options:
        return {name: {"type": "string", **titled}}
    field: dict[str, Any] = (
        {"type": "array", "items": {"anyOf": options}}
        if question.multiple
        else {"type": "string", "oneOf": options}
    )
    fields: dict[str, JsonValue] = {name: {**field, **titled}}
    if question.free_text:
        fields[f"{name}_text"] = {"type": "string", "title": "In your own words"}
    return fields


def _option_title(option: Option) -> str:
    return f"{option.label}: {option.description}" if option.description else option.label


def _read_field(filled: Mapping[str, JsonValue], name: str, question: Question) -> JsonValue:
    """Return the answer to one question, as `ask_user` takes it."""
    # an editor may send null for a field that was left empty
    chosen, words = filled.get(name), filled.get(f"{name}_text") or ""
    if not question.options:
        return {"text": chosen or ""}
    selected: JsonValue = chosen if isinstance(chosen, list) else [chosen] if chosen else []
    return {"selected": selected, "text": words}
