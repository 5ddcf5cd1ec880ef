"""What several wires read from a request: checked values, ids, an idempotency key."""

import re
from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256
from typing import Annotated, Final, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, Field, JsonValue, ValidationError
from pydantic_core import ErrorDetails

from passback.core.errors import BadRequest, InvalidRequest, NotAcceptable, UnknownRun
from passback.core.ids import new_conversation_id
from passback.core.messages import ConversationId, OwnerId, RunId
from passback.core.text import plain_problem
from passback.core.values import value
from passback.http.headers import Headers, is_plain_id

_SHOWN_CHARACTERS = 200
_TAGS: Final = ("role", "type")
"""The keys by whose values the posted forms are told apart."""

_Place: TypeAlias = tuple[int | str, ...]


@value
class Misfit:
    """`at` joins the keys and positions that lead to it by dots; `is_kind` says that the value is of a wrong kind."""

    place: _Place
    problem: str
    is_kind: bool

    @property
    def at(self) -> str:
        return ".".join(map(str, self.place))


def misfits(error: ValidationError, value: JsonValue, /) -> Sequence[Misfit]:
    """Where a value does not fit a model, and why; never what was there.

    Where there are several forms, the complaints of those that the value was not meant to have are left out.
    """
    details = error.errors(include_url=False, include_input=False)
    found = [_misfit(detail, value) for detail in details]
    return [each for each in found if not any(_says_more(other, each) for other in found)]


def _says_more(other: Misfit, one: Misfit) -> bool:
    """Whether another form fits better than that of which one tells: it got further, or has the right kind."""
    if not one.is_kind or other.place[: len(one.place)] != one.place:
        return False
    return len(other.place) > len(one.place) or not other.is_kind


def _misfit(detail: ErrorDetails, value: JsonValue) -> Misfit:
    kind, context = detail["type"], detail.get("ctx", {})
    place = _place(detail["loc"], value, is_missing=kind == "missing")
    problem = plain_problem(detail)
    if "discriminator" in context:
        place = (*place, context["discriminator"].strip("'"))
        if "expected_tags" in context:
            problem = f"Input should be one of {context['expected_tags']}"
    return Misfit(place, problem[:_SHOWN_CHARACTERS], kind.endswith("_type"))


def _place(location: _Place, value: JsonValue, *, is_missing: bool) -> _Place:
    """A location without the names of forms, which stand between its keys."""
    place: list[int | str] = []
    inside: JsonValue = value
    form_is_known = False
    for number, step in enumerate(location, 1):
        is_last = number == len(location)
        if isinstance(inside, list) and isinstance(step, int):
            inside, form_is_known = inside[step], False
        elif (
            isinstance(inside, dict) and not form_is_known and not is_last and _names(step, inside)
        ):
            form_is_known = True
            continue
        elif isinstance(inside, dict) and isinstance(step, str) and step in inside:
            inside, form_is_known = inside[step], False
        elif not (is_last and is_missing):
            continue
        place.append(step)
    return tuple(place)


def _names(step: int | str, inside: dict[str, JsonValue]) -> bool:
    return any(inside.get(tag) == step for tag in _TAGS)


_RANGE = re.compile(r"\s*([^\s;,/]+)/([^\s;,/]+)\s*((?:;[^,]*)?)", re.ASCII)
_WEIGHT = re.compile(
    r";\s*q\s*=\s*(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)\s*(?:;|$)", re.ASCII | re.IGNORECASE
)
_ANY_WEIGHT = re.compile(r";\s*q\s*=", re.IGNORECASE)


def accepted(header: str, offers: Sequence[str], /) -> str:
    """The offered media type that the client likes best; of those that it likes alike, the first.

    Args:
        header: the client's; empty: it takes anything. What cannot be read in it accepts nothing.
        offers: types without parameters, lower case; those of the client's ranges do not matter, but for `q`.

    Raises:
        NotAcceptable: it takes none of them.
    """
    if header.strip() in {"", "*/*", offers[0]}:
        return offers[0]
    weights = _weights(header.lower())
    best = max(offers, key=lambda offer: _liking(offer, weights))
    if _liking(best, weights) == 0:
        raise NotAcceptable(
            f"the answer can be {' or '.join(offers)}", details={"available": list(offers)}
        )
    return best


def _weights(header: str) -> dict[str, float]:
    """The weight of each range, the largest where one is named twice."""
    weights: dict[str, float] = {}
    for element in header.split(","):
        if found := _RANGE.fullmatch(element):
            kind, parameters = f"{found[1]}/{found[2]}", found[3]
            weights[kind] = max(weights.get(kind, 0), _weight(parameters))
    return weights


def _weight(parameters: str) -> float:
    if found := _WEIGHT.search(parameters):
        return float(found[1])
    return 0 if _ANY_WEIGHT.search(parameters) else 1


def _liking(offer: str, weights: dict[str, float]) -> float:
    """The weight of the range that names an offer most exactly."""
    ranges = (offer, f"{offer.partition('/')[0]}/*", "*/*")
    return next((weights[each] for each in ranges if each in weights), 0)


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
