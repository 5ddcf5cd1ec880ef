"""What several wires read from a request: checked values, a conversation's id."""

import unicodedata
from typing import TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from passback.core.errors import InvalidRequest
from passback.core.messages import ConversationId

_ID_CHARACTERS = 256
_SHOWN_PROBLEMS = 5
_SHOWN_CHARACTERS = 200

ModelT = TypeVar("ModelT", bound=BaseModel)


def validated(model: type[ModelT], value: JsonValue, /) -> ModelT:
    """The value in the model's shape.

    Raises:
        InvalidRequest: says where it does not fit, never what was there.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _misfit(error) from None


def _misfit(error: ValidationError) -> InvalidRequest:
    problems = [
        {"at": ".".join(map(str, problem["loc"])), "problem": problem["msg"][:_SHOWN_CHARACTERS]}
        for problem in error.errors(include_url=False, include_context=False, include_input=False)
    ][:_SHOWN_PROBLEMS]
    first = problems[0]
    return InvalidRequest(f"{first['at']}: {first['problem']}", details={"problems": problems})


def conversation_id(text: str, /) -> ConversationId:
    """Check an id that a client chose.

    Raises:
        InvalidRequest: empty, longer than 256 characters, with control characters or braces, or a step in a path.
    """
    if not 1 <= len(text) <= _ID_CHARACTERS:
        raise InvalidRequest(f"a conversation id has 1 to {_ID_CHARACTERS} characters")
    if any(unicodedata.category(character) == "Cc" for character in text):
        raise InvalidRequest("a conversation id has no control characters")
    if text in {".", ".."}:
        raise InvalidRequest("a conversation id is not . or .., which URLs cannot hold")
    if "{" in text or "}" in text:  # mostly a template that was not filled in
        raise InvalidRequest("a conversation id has no braces")
    return ConversationId(text)
