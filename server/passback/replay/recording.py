"""The file of a recorded run: format `passback-run`, version 1 (docs/how-to/playground.md)."""

from pathlib import Path
from typing import Annotated, Literal, cast

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import from_json

from passback.core.errors import ConfigurationError

FORMAT = "passback-run"
VERSION = 1
MAX_BYTES = 64 * 1024 * 1024  # of a file
MAX_PLACES = 1000  # cuts and refusals of one answer
MAX_DELAY = 600_000  # milliseconds
MAX_RETRY_AFTER = 3600  # seconds
_DAY = 24 * 60 * 60 * 1000  # milliseconds

# a line break would end a field of the server-sent event that is made of it
_OneLine = Annotated[str, Field(pattern=r"^[^\r\n\x00]*$")]
_HeaderValue = Annotated[str, Field(pattern=r"^[\x20-\x7e]*$", max_length=8192)]
_Moment = Annotated[float, Field(ge=0, le=_DAY, allow_inf_nan=False)]
_Delay = Annotated[float, Field(ge=0, le=MAX_DELAY, allow_inf_nan=False)]
_Place = Annotated[int, Field(ge=1)]
Refusal = Literal[409, 429, 503]


class _RecordingModel(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class Frame(_RecordingModel):
    """One server-sent event. `at` is in milliseconds since the request."""

    at: _Moment
    id: _OneLine
    data: _OneLine


class RecordedRequest(_RecordingModel):
    """A post, or a request to follow a run."""

    method: Literal["GET", "POST"]
    path: str
    body: dict[str, JsonValue] | None = None

    @property
    def answered_calls(self) -> frozenset[str]:
        """The calls whose results the request brings."""
        return answered_calls(self.body or {})


class RecordedResponse(_RecordingModel):
    """Status and headers of the response. `body` is that of a refusal."""

    status: Annotated[int, Field(ge=200, le=599)]
    headers: dict[str, _HeaderValue] = Field(default_factory=dict)
    body: JsonValue = None


class Cut(_RecordingModel):
    """An attempt that failed, after which the client tried again.

    `after` is the number of frames that it had by then. `response` is what the attempt got: a
    stream that broke off, a refusal, or None for no answer at all. A file without them is read by
    `at`: what broke before the first frame had no answer.
    """

    at: _Moment
    after: Annotated[int, Field(ge=0)] | None = None
    response: RecordedResponse | None = None


class Faults(_RecordingModel):
    """Faults that are played, in addition to the recorded ones. Places count from 1.

    Args:
        cut_after: the answer breaks off behind each of these events, once.
        take_over_after: the worker dies behind this event, and another one takes the run over.
        delay: milliseconds by which each event comes later than without it.
        delay_first: milliseconds before the answer to a post begins.
        refuse: statuses with which a post is refused, one after the other, before it is answered.
        retry_after: seconds in the `Retry-After` of these refusals.
        twice: the answer to each post is lost once, so that the client posts it twice.
        seed: further faults at random places, the same for the same seed.
    """

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid")

    cut_after: Annotated[tuple[_Place, ...], Field(strict=False, max_length=MAX_PLACES)] = ()
    take_over_after: _Place | None = None
    delay: _Delay = 0
    delay_first: _Delay = 0
    refuse: Annotated[tuple[Refusal, ...], Field(strict=False, max_length=MAX_PLACES)] = ()
    retry_after: Annotated[int, Field(ge=0, le=MAX_RETRY_AFTER)] = 1
    twice: bool = False
    seed: int | None = None

    def describe(self) -> str:
        """Return the faults in words, for the person who starts a replay; empty without any."""
        words = [
            f"cut after {', '.join(map(str, self.cut_after))}" if self.cut_after else "",
            f"take-over after {self.take_over_after}" if self.take_over_after else "",
            f"first byte {self.delay_first:g} ms later" if self.delay_first else "",
            f"each event {self.delay:g} ms later" if self.delay else "",
            f"refuse with {', '.join(map(str, self.refuse))}" if self.refuse else "",
            "each post twice" if self.twice else "",
            "" if self.seed is None else f"random by seed {self.seed}",
        ]
        return "; ".join(filter(None, words))


class Exchange(_RecordingModel):
    """A request and all frames of its response, read on one or several connections."""

    request: RecordedRequest
    response: RecordedResponse | None
    frames: tuple[Frame, ...] = Field(strict=False)
    cuts: tuple[Cut, ...] = Field(strict=False, default=())
    faults: Faults | None = None

    @property
    def run_id(self) -> str | None:
        """The run whose frames these are."""
        return self.response.headers.get("x-run-id") if self.response else None


class Recording(_RecordingModel):
    """The exchanges that have a response, oldest first. `startedAt` is when the first one began.

    `faults` are those of each exchange that has none of its own.
    """

    startedAt: Annotated[AwareDatetime, Field(strict=False)] | None = None  # noqa: N815
    exchanges: tuple[Exchange, ...] = Field(strict=False)
    faults: Faults = Field(default_factory=Faults)


def answered_calls(body: dict[str, JsonValue], /) -> frozenset[str]:
    """Return the calls whose results are in the body of a post, well-formed or not."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return frozenset()
    calls = [message.get("toolCallId") for message in messages if isinstance(message, dict)]
    return frozenset(call for call in calls if isinstance(call, str))


def load_recording(path: Path, /) -> Recording:
    """Read a recording from a file.

    Raises:
        ConfigurationError: the file cannot be read, is too large, or is not a recording of this
            version. The text says which.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)  # one more shows that a file is too large
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
    if len(text) > MAX_BYTES:
        raise ConfigurationError(f"{path}: larger than {MAX_BYTES // 1024 // 1024} MiB")
    try:
        return parse_recording(text)
    except ValueError as error:
        raise ConfigurationError(f"{path}: {error}") from error


def parse_recording(text: bytes, /) -> Recording:
    """Return the recording in a file's content. Raise ValueError with what is wrong."""
    try:
        value = cast("JsonValue", from_json(text, allow_inf_nan=False))
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise ValueError(f'not an exported run: it has no "format": "{FORMAT}"')
    if value.get("version") != VERSION:
        found = str(value.get("version"))[:20]
        raise ValueError(f"of version {found}; this passback reads version {VERSION}")
    try:
        recording = Recording.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place}: {first['msg']}") from None
    answered = tuple(each for each in recording.exchanges if each.response)
    if not answered:
        raise ValueError("no request in it has an answer")
    return recording.model_copy(update={"exchanges": answered})
