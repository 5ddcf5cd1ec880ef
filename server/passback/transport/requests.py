"""What several wires read from a request: checked values, ids, an idempotency key."""

import re
from collections.abc import Collection, Iterable
from hashlib import sha256
from typing import Annotated, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, Field, JsonValue, ValidationError

from passback.core.errors import BadRequest, InvalidRequest, UnknownRun
from passback.core.ids import new_conversation_id
from passback.core.messages import ConversationId, OwnerId, RunId
from passback.transport.headers import Headers, is_plain_id
from passback.transport.misfits import misfits

_ID_CHARACTERS = 256
_KEY_CHARACTERS = 256
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SHOWN_PROBLEMS = 5

ModelT = TypeVar("ModelT", bound=BaseModel)


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("has characters that cannot be printed")
    return text


PostedId: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=256), AfterValidator(_printable)
]
"""What a client calls a message."""

MaybeId: TypeAlias = Annotated[str, Field(max_length=256), AfterValidator(_printable)]
"""The same; empty: nothing."""


def validated(model: type[ModelT], value: JsonValue, /) -> ModelT:
    """The value in the model's shape.

    Raises:
        InvalidRequest: says where it does not fit, never what was there.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        shown = misfits(error, value)[:_SHOWN_PROBLEMS]
        problems: list[JsonValue] = [{"at": each.at, "problem": each.problem} for each in shown]
        told = f"{shown[0].at}: {shown[0].problem}"
        raise InvalidRequest(told, details={"problems": problems}) from None


def included(words: Iterable[str], known: Collection[str], /) -> frozenset[str]:
    """Return what an `include` asks for; empty words ask for nothing.

    Raises:
        InvalidRequest: it asks for what there is not; says what there is.
    """
    wanted = frozenset(filter(None, words))
    if not wanted <= frozenset(known):
        problem = f"each word has to be one of {', '.join(sorted(known))}"
        problems: list[JsonValue] = [{"at": "include", "problem": problem}]
        raise InvalidRequest(f"include: {problem}", details={"problems": problems})
    return wanted


def conversation_id(text: str, /) -> ConversationId:
    """Check an id that a client chose.

    Raises:
        InvalidRequest: empty, longer than 256 characters, with control characters or braces, or a step in a path.
    """
    if not 1 <= len(text) <= _ID_CHARACTERS:
        raise InvalidRequest(f"a conversation id has 1 to {_ID_CHARACTERS} characters")
    if _CONTROL.search(text):
        raise InvalidRequest("a conversation id has no control characters")
    if text in {".", ".."}:
        raise InvalidRequest("a conversation id is not . or .., which URLs cannot hold")
    if "{" in text or "}" in text:  # mostly a template that was not filled in
        raise InvalidRequest("a conversation id has no braces")
    return ConversationId(text)


def run_id(text: str, /) -> RunId:
    """Check the id of a run that a client names: an answer's header repeats it.

    Raises:
        UnknownRun: no run of this server can have it.
    """
    if not is_plain_id(text):
        raise UnknownRun("there is no such run: a run id has 1 to 128 letters, digits and . _ -")
    return RunId(text)


def whole_number(text: str, /, *, least: int, most: int) -> int | None:
    """A number of a query, in digits; None when it is none, or out of bounds."""
    is_number = text.isascii() and text.isdigit() and len(text) <= 16
    return int(text) if is_number and least <= int(text) <= most else None


# ---------------------------------------------------------------- idempotency keys
# a string as structured fields write it (RFC 9651), or the bare text that most clients send
_KEY = re.compile(r'"((?:[!#-\[\]-~]|\\["\\])+)"|([!#-+\--:<-\[\]-~]+)')


def idempotency_key(headers: Headers, /) -> str | None:
    """What a client calls its post, so that a repeat of it is known again; quoted and bare, a key is the same.

    Raises:
        BadRequest: not one text of 1 to 256 visible ASCII characters. It is not 422: that says that the key was used
            with other content.
    """
    given = headers.all(b"idempotency-key")
    if not given:
        return None
    found = _KEY.fullmatch(given[0]) if len(given) == 1 else None
    key = re.sub(r"\\(.)", r"\1", found[1] or found[2]) if found else ""
    if not 1 <= len(key) <= _KEY_CHARACTERS:
        raise BadRequest(
            f"an Idempotency-Key is one text of 1 to {_KEY_CHARACTERS} visible ASCII characters"
        )
    return key


def keyed_conversation_id(owner: OwnerId, key: str, /) -> ConversationId:
    """The conversation that a keyed post without one begins: a repeat has to find it."""
    digest = sha256(f"{owner}\0{key}".encode()).hexdigest()
    return ConversationId(f"conv_{digest[:24]}")


def posted_conversation_id(owner: OwnerId, key: str | None, given: str | None, /) -> ConversationId:
    """The conversation of a post; a new one where the post, which may have a key, names none. Raises InvalidRequest."""
    if given is not None:
        return conversation_id(given)
    return new_conversation_id() if key is None else keyed_conversation_id(owner, key)
