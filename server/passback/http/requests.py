"""Readers that several wires share: headers, validated models, media types, ids, keys of posts."""

import re
from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256
from typing import Annotated, Final, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, Field, JsonValue, ValidationError
from starlette.requests import Request
from starlette.types import Scope

from passback.core.errors import (
    BadRequest,
    InvalidCursor,
    InvalidRequest,
    NotAcceptable,
    UnknownRun,
)
from passback.core.ids import new_conversation_id
from passback.core.messages import ConversationId, OwnerId, RunId
from passback.core.text import describe_validation_error
from passback.core.values import value

_HEADERS_KEY = "passback.headers"
PLAIN_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
"""Ids that may stand unquoted in a header or a line of the log, as all that the server makes."""


class Headers:
    """The headers of one request. Names are in lower case, as in ASGI.

    Attributes:
        first: the first header of each name.
        all: every header of each name, in the order of the request.
    """

    __slots__ = ("all", "first")

    def __init__(self, raw: Iterable[tuple[bytes, bytes]], /) -> None:
        self.first: dict[bytes, str] = {}
        self.all: dict[bytes, list[str]] = {}
        for name, content in raw:
            text = content.decode("latin-1")  # decodes any bytes
            self.first.setdefault(name, text)
            self.all.setdefault(name, []).append(text)


def headers_of(scope: Scope, /) -> Headers:
    """Return the headers of a request, the same object on every call."""
    known: Headers | None = scope.get(_HEADERS_KEY)
    if known is None:
        known = scope[_HEADERS_KEY] = Headers(scope["headers"])
    return known


def sent_path(scope: Scope, /) -> str:
    """Return the path of a request as it was sent, below the place where the site is mounted."""
    raw: bytes | None = scope.get("raw_path")
    path: str = scope["path"] if raw is None else raw.decode("latin-1")
    return path.removeprefix(scope.get("root_path", ""))


_SHOWN_CHARACTERS = 200  # of one problem, in an error
_SHOWN_PROBLEMS = 5  # in an error
_TAGS: Final = ("role", "type")  # keys whose values select one of several posted forms

_Place: TypeAlias = tuple[int | str, ...]


@value
class Misfit:
    """One place where a value does not fit a model.

    Args:
        place: the keys and positions that lead to it.
        problem: the reason, without the value.
        is_kind: the value is of a wrong type.
    """

    place: _Place
    problem: str
    is_kind: bool

    @property
    def at(self) -> str:
        """The place, joined by dots."""
        return ".".join(map(str, self.place))


def find_misfits(error: ValidationError, value: JsonValue, /) -> Sequence[Misfit]:
    """Return the places where a value does not fit a model, with the reasons but without values.

    If the model allows several forms, only the form that the value fits best is reported.
    """
    details = error.errors(include_url=False, include_input=False)
    found: list[Misfit] = []
    for detail in details:
        kind, context = detail["type"], detail.get("ctx", {})
        place = _keys_of(detail["loc"], value, is_missing=kind == "missing")
        problem = describe_validation_error(detail)
        if "discriminator" in context:
            place = (*place, context["discriminator"].strip("'"))
            if "expected_tags" in context:
                problem = f"Input should be one of {context['expected_tags']}"
        found.append(Misfit(place, problem[:_SHOWN_CHARACTERS], kind.endswith("_type")))
    return [each for each in found if not any(_fits_better(other, each) for other in found)]


def _fits_better(other: Misfit, one: Misfit) -> bool:
    """Return whether the form of `other` fits better: it got further, or has the right type."""
    if not one.is_kind or other.place[: len(one.place)] != one.place:
        return False
    return len(other.place) > len(one.place) or not other.is_kind


def _keys_of(location: _Place, value: JsonValue, *, is_missing: bool) -> _Place:
    """Return pydantic's location without the names of forms that it puts between the keys."""
    place: list[int | str] = []
    inside: JsonValue = value
    form_is_known = False
    for number, step in enumerate(location, 1):
        is_last = number == len(location)
        tags = [inside.get(tag) for tag in _TAGS] if isinstance(inside, dict) else ()
        if isinstance(inside, list) and isinstance(step, int):
            inside, form_is_known = inside[step], False
        elif step in tags and not form_is_known and not is_last:
            form_is_known = True  # a second step of this name is a key
            continue
        elif isinstance(inside, dict) and isinstance(step, str) and step in inside:
            inside, form_is_known = inside[step], False
        elif not (is_last and is_missing):  # the last step of a missing key is not in the value
            continue
        place.append(step)
    return tuple(place)


# media ranges and weights of an `Accept` header (RFC 9110, section 12.5.1)
_RANGE = re.compile(r"\s*([^\s;,/]+)/([^\s;,/]+)\s*((?:;[^,]*)?)", re.ASCII)
_WEIGHT = re.compile(
    r";\s*q\s*=\s*(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)\s*(?:;|$)", re.ASCII | re.IGNORECASE
)
_ANY_WEIGHT = re.compile(r";\s*q\s*=", re.IGNORECASE)


def preferred_media_type(header: str, offers: Sequence[str], /) -> str:
    """Return the offered media type that the client prefers; of equal ones, the first.

    Args:
        header: the client's `Accept`. An empty one accepts anything. An element that cannot be
            parsed accepts nothing. Parameters other than `q` are ignored.
        offers: media types without parameters, in lower case.

    Raises:
        NotAcceptable: the client accepts none of them.
    """
    if header.strip() in {"", "*/*", offers[0]}:  # most clients: nothing to weigh
        return offers[0]
    weights = _parse_weights(header.lower())
    best = max(offers, key=lambda offer: _offer_weight(offer, weights))
    if _offer_weight(best, weights) == 0:
        raise NotAcceptable(
            f"the answer can be {' or '.join(offers)}", details={"available": list(offers)}
        )
    return best


def _parse_weights(header: str) -> dict[str, float]:
    """Return the weight of each media range, the largest if one is named twice."""
    weights: dict[str, float] = {}
    for element in header.split(","):
        if found := _RANGE.fullmatch(element):
            kind, parameters = f"{found[1]}/{found[2]}", found[3]
            if given := _WEIGHT.search(parameters):
                weight = float(given[1])
            else:  # a malformed weight accepts nothing, a missing one is 1
                weight = 0 if _ANY_WEIGHT.search(parameters) else 1
            weights[kind] = max(weights.get(kind, 0), weight)
    return weights


def _offer_weight(offer: str, weights: dict[str, float]) -> float:
    """Return the weight of the most specific range that matches an offer."""
    ranges = (offer, f"{offer.partition('/')[0]}/*", "*/*")
    return next((weights[each] for each in ranges if each in weights), 0)


_ID_CHARACTERS = 256
_KEY_CHARACTERS = 256
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

ModelT = TypeVar("ModelT", bound=BaseModel)


def _check_printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("has characters that cannot be printed")
    return text


# a client's id of a message
PostedId: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=_ID_CHARACTERS), AfterValidator(_check_printable)
]
# the same, or empty for none
OptionalId: TypeAlias = Annotated[
    str, Field(max_length=_ID_CHARACTERS), AfterValidator(_check_printable)
]


def validate_model(model: type[ModelT], value: JsonValue, /) -> ModelT:
    """Return a value as a model.

    Raises:
        InvalidRequest: it does not fit. The error names the places, never the values.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        shown = find_misfits(error, value)[:_SHOWN_PROBLEMS]
        problems: list[JsonValue] = [{"at": each.at, "problem": each.problem} for each in shown]
        at, problem = shown[0].at, shown[0].problem
        message = f"{at}: {problem}" if at else problem
        raise InvalidRequest(message, details={"problems": problems}) from None


def parse_include(words: Iterable[str], known: Collection[str], /) -> frozenset[str]:
    """Return the words of an `include`, without empty ones.

    Raises:
        InvalidRequest: a word is not `known`. The error lists those that are.
    """
    wanted = frozenset(filter(None, words))
    if not wanted <= frozenset(known):
        problem = f"each word has to be one of {', '.join(sorted(known))}"
        problems: list[JsonValue] = [{"at": "include", "problem": problem}]
        raise InvalidRequest(f"include: {problem}", details={"problems": problems})
    return wanted


def check_conversation_id(text: str, /) -> ConversationId:
    """Return a conversation id that a client chose, checked.

    Raises:
        InvalidRequest: it is empty, longer than 256 characters, has control characters or braces,
            or is a step in a path.
    """
    if not 1 <= len(text) <= _ID_CHARACTERS:
        raise InvalidRequest(f"a conversation id has 1 to {_ID_CHARACTERS} characters")
    if _CONTROL.search(text):
        raise InvalidRequest("a conversation id has no control characters")
    if text in {".", ".."}:
        raise InvalidRequest("a conversation id cannot be . or .., because URLs cannot hold them")
    if "{" in text or "}" in text:  # mostly a template without its value
        raise InvalidRequest("a conversation id has no braces")
    return ConversationId(text)


def check_run_id(text: str, /) -> RunId:
    """Return the id of a run that a client names, checked.

    Raises:
        UnknownRun: no run of this server can have it.
    """
    if not PLAIN_ID.fullmatch(text):  # a header of the answer repeats it
        raise UnknownRun("there is no such run: a run id has 1 to 128 letters, digits and . _ -")
    return RunId(text)


def parse_whole_number(text: str, /, *, least: int, most: int) -> int | None:
    """Return a number in digits from a query, or None if it is none or out of bounds."""
    is_number = text.isascii() and text.isdigit() and len(text) <= 16
    return int(text) if is_number and least <= int(text) <= most else None


def number_parameter(
    request: Request, name: str, default: int, /, *, most: int, least: int = 0
) -> int:
    """Return a number of the query, or its default.

    Raises:
        InvalidRequest: it is not a whole number from `least` to `most`.
    """
    given = request.query_params.get(name)
    if given is None:
        return default
    number = parse_whole_number(given, least=least, most=most)
    if number is None:
        raise InvalidRequest(
            f"{name} has to be a number from {least} to {most}", details={"parameter": name}
        )
    return number


_PLACE = re.compile(r"([0-9]{1,16})-([0-9a-f]{32})", re.ASCII)


def parse_place(text: str, name: str, /) -> tuple[int, str]:
    """Return the number and the tag of a place in a list, `NUMBER-TAG`, that a client gives back.

    Raises:
        InvalidCursor: the text is no place; the error has the parameter's `name`.
    """
    found = _PLACE.fullmatch(text)
    if found is None:
        raise InvalidCursor(f"{name} is not one that an earlier page gave")
    return int(found[1]), found[2]


# a string of structured fields (RFC 9651), or the bare text that most clients send
_IDEMPOTENCY_KEY = re.compile(r'"((?:[!#-\[\]-~]|\\["\\])+)"|([!#-+\--:<-\[\]-~]+)')


def idempotency_key(headers: Headers, /) -> str | None:
    """Return the client's key of a post, by which a repeat is recognized.

    A key is the same in quotes and bare.

    Raises:
        BadRequest: it is not one text of 1 to 256 visible ASCII characters. This is not a 422,
            which would mean that the key was used with other content.
    """
    given = headers.all.get(b"idempotency-key", ())
    if not given:
        return None
    found = _IDEMPOTENCY_KEY.fullmatch(given[0]) if len(given) == 1 else None
    key = re.sub(r"\\(.)", r"\1", found[1] or found[2]) if found else ""
    if not 1 <= len(key) <= _KEY_CHARACTERS:
        raise BadRequest(
            f"an Idempotency-Key is one text of 1 to {_KEY_CHARACTERS} visible ASCII characters"
        )
    return key


def keyed_conversation_id(
    owner: OwnerId, key: str, source: ConversationId | None = None, /
) -> ConversationId:
    """Return the id for a conversation that a request with a key begins, so that a repeat finds it.

    `source`: the conversation of which it is a fork. Keys of forks of different conversations, and
    those of posts, give different ids.
    """
    named = [owner, key] if source is None else [owner, key, source]
    digest = sha256("\0".join(named).encode("utf-8", "surrogatepass")).hexdigest()
    return ConversationId(f"conv_{digest[:24]}")


def posted_conversation_id(
    owner: OwnerId, key: str | None, given: str | None, /, *, source: ConversationId | None = None
) -> ConversationId:
    """Return the `given` conversation id, checked, or a new one for a request that names none.

    `source`: the conversation of which the new one is a fork, if it is.

    Raises:
        InvalidRequest: as `check_conversation_id` raises it.
    """
    if given is not None:
        return check_conversation_id(given)
    return new_conversation_id() if key is None else keyed_conversation_id(owner, key, source)
