"""The content of an answer, kept right when a part of it is taken back."""

import re
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

from pydantic import JsonValue

from passback_client.calls import Call, CallEvent, Calls, chars_of
from passback_client.errors import BadAnswer, LimitExceeded
from passback_client.events import Event, Failure, Left, Output, Rewind, RunEnd, Text, Usage
from passback_client.limits import Limits

_ID = re.compile(
    r"(?P<run>.+)\.(?P<epoch>\d{1,15})-(?P<number>\d{1,15})(?:~(?P<piece>\d{1,3}))?", re.ASCII
)


class Place(NamedTuple):
    """The place of an event in its run; places of one run are ordered."""

    run: str
    epoch: int
    number: int
    piece: int

    @classmethod
    def parse(cls, event_id: str) -> Self:
        """Raises BadAnswer: not an id of a passback server."""
        found = _ID.fullmatch(event_id)
        if found is None:
            raise BadAnswer("an event of the stream has no id of a passback server")
        return cls(
            found["run"], int(found["epoch"]), int(found["number"]), int(found["piece"] or 0)
        )


@dataclass(slots=True)
class _Said:
    """The content of an answer up to a place.

    Attributes:
        texts: the pieces of each run, by its id.
        calls: the calls.
        usages: of each model call.
        output: the accepted value.
        model: the one that spoke last.
        chars: of all texts.
        call_chars: of all calls.
    """

    texts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    calls: Calls = field(default_factory=Calls)
    usages: list[Usage] = field(default_factory=list[Usage])
    output: JsonValue = None
    model: str | None = None
    chars: int = 0
    call_chars: int = 0

    def copy(self) -> "_Said":
        texts = {run: [*pieces] for run, pieces in self.texts.items()}
        return replace(self, texts=texts, calls=self.calls.copy(), usages=[*self.usages])

    def take(self, event: Event, limits: Limits) -> bool:
        """Add an event; return True if it has content that is kept here. Raises LimitExceeded."""
        match event:
            case Text(content):
                self._add(Place.parse(event.id).run, content, limits)
            case Output(value):
                self.output = value
            case Usage():
                self.usages.append(event)
                if event.parent_call_id is None:
                    self.model = event.model or self.model
            case _ if isinstance(event, CallEvent):
                self._add_to_calls(event, limits)
            case _:
                return False
        return True

    def _add(self, run: str, text: str, limits: Limits) -> None:
        if self.chars + len(text) > limits.text_chars:
            raise LimitExceeded("the answer's text is too long")
        self.chars += len(text)
        self.texts.setdefault(run, []).append(text)

    def _add_to_calls(self, event: CallEvent, limits: Limits) -> None:
        chars = self.call_chars + chars_of(event)
        if chars > limits.call_chars:
            raise LimitExceeded("the calls of the answer are too long")
        self.call_chars = chars
        self.calls.feed(event)


class Answer:
    """Collects what is said: `feed` it each event of a stream.

    Attributes:
        conversation_id: the conversation, as `ask` knows it.
        outcome: of the last run that ended, as in `RunEnd`.
        failure: with which the last run ended, if it did.
        left: of the run's limits, as it was told last; `ask` knows it, and who includes `usage`.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.conversation_id: str | None = None
        self.outcome: str | None = None
        self.failure: Failure | None = None
        self.left: Left | None = None
        self._limits = limits or Limits()
        self._said = _Said()
        self._settled = _Said()
        """Of the runs that have ended: nothing of it is taken back."""
        self._events: list[Event] = []
        """What has been said since."""

    def feed(self, event: Event) -> None:
        """Take an event; kinds that change nothing here are passed over.

        Raises:
            LimitExceeded: the text is too long, or the calls are.
        """
        if isinstance(event, Rewind):
            self._rewind(Place.parse(event.to))
            return
        if self._said.take(event, self._limits):
            self._events.append(event)
        match event:
            case Failure():
                self.failure = event
            case RunEnd(outcome, _, model):
                self.outcome = outcome
                self._said.model = model or self._said.model
                self._events.clear()
                self._settled = self._said.copy()
            case Usage(left=Left() as left):
                self.left = left
            case _:
                pass

    @property
    def texts(self) -> list[str]:
        """The text of each run that has one."""
        return ["".join(pieces) for pieces in self._said.texts.values()]

    @property
    def text(self) -> str:
        """All that was said; the runs between which client tools ran are parted by an empty
        line.
        """
        return "\n\n".join(self.texts)

    @property
    def output(self) -> JsonValue:
        """The accepted value, where the answer had to fit an output schema: an object. The text is
        a draft then.
        """
        return self._said.output

    @property
    def calls(self) -> tuple[Call, ...]:
        """The agent's own, in the order in which they began; those of a sub-agent are within the
        call that it works on.
        """
        return self._said.calls.tree()

    @property
    def model(self) -> str | None:
        """The name of the model that spoke last, sub-agents aside; None: none did, or it is not
        told.
        """
        return self._said.model

    @property
    def model_calls(self) -> tuple[Usage, ...]:
        """The usage of each model call, sub-agents' included; `ask` knows it, and who includes
        `usage`.
        """
        return tuple(self._said.usages)

    @property
    def usage(self) -> Usage | None:
        """The sum of `model_calls`; None where there are none, or nothing is told of them."""
        each = self._said.usages
        if not each:
            return None
        return Usage(
            sum(one.input_tokens for one in each),
            sum(one.output_tokens for one in each),
            sum(one.cached_tokens for one in each),
            sum(one.reasoning_tokens for one in each),
            estimated=any(one.estimated for one in each),
        )

    def _rewind(self, to: Place) -> None:
        self._said = self._settled.copy()
        self._events = [event for event in self._events if not _is_behind(event.id, to)]
        for event in self._events:
            self._said.take(event, self._limits)


def _is_behind(event_id: str, to: Place) -> bool:
    """Return True if the event is of the same run, and comes later; an event without a place
    stays.
    """
    if _ID.fullmatch(event_id) is None:
        return False
    place = Place.parse(event_id)
    return place.run == to.run and place > to
