"""The content of an answer, without what was rewound."""

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
        """Read an event's id. Raises BadAnswer if it is not one of a passback server."""
        found = _ID.fullmatch(event_id)
        if found is None:
            raise BadAnswer("an event of the stream has no id of a passback server")
        return cls(
            found["run"], int(found["epoch"]), int(found["number"]), int(found["piece"] or 0)
        )


@dataclass(slots=True)
class _Content:
    """The content of an answer up to a place.

    Attributes:
        texts: the pieces of each run, by its id.
        calls: the calls.
        usages: of each model call.
        output: the accepted value.
        model: the one that answered last.
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

    def copy(self) -> "_Content":
        texts = {run: [*pieces] for run, pieces in self.texts.items()}
        return replace(self, texts=texts, calls=self.calls.copy(), usages=[*self.usages])

    def add(self, event: Event, limits: Limits) -> bool:
        """Add an event; return True if it has content that is kept here. Raises LimitExceeded."""
        match event:
            case Text(content):
                self._add_text(Place.parse(event.id).run, content, limits)
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

    def _add_text(self, run: str, text: str, limits: Limits) -> None:
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
    """Collects the content of an answer: `feed` it each event of a stream.

    Attributes:
        conversation_id: the conversation, as `ask` knows it.
        outcome: of the last run that ended, as in `RunEnd`.
        failure: of the last run, if it ended with one.
        left: the rest of the run's limits, after `ask` or with `usage` included.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.conversation_id: str | None = None
        self.outcome: str | None = None
        self.failure: Failure | None = None
        self.left: Left | None = None
        self._limits = limits or Limits()
        self._content = _Content()
        self._committed = _Content()
        """The content of ended runs, which is never rewound."""
        self._events: list[Event] = []
        """Events since then, which a rewind may void."""

    def feed(self, event: Event) -> None:
        """Add an event; kinds without content are ignored.

        Raises:
            LimitExceeded: the text or the calls are too long.
        """
        if isinstance(event, Rewind):
            self._rewind(Place.parse(event.to))
            return
        if self._content.add(event, self._limits):
            self._events.append(event)
        match event:
            case Failure():
                self.failure = event
            case RunEnd(outcome, _, model):
                self.outcome = outcome
                self._content.model = model or self._content.model
                self._events.clear()
                self._committed = self._content.copy()
            case Usage(left=Left() as left):
                self.left = left
            case _:
                pass

    @property
    def texts(self) -> list[str]:
        """The text of each run that has one."""
        return ["".join(pieces) for pieces in self._content.texts.values()]

    @property
    def text(self) -> str:
        """The text of all runs; a blank line separates runs between which client tools ran."""
        return "\n\n".join(self.texts)

    @property
    def output(self) -> JsonValue:
        """The accepted object, if an output schema was given; the text is a draft then."""
        return self._content.output

    @property
    def calls(self) -> tuple[Call, ...]:
        """The agent's own calls, in order; calls of a sub-agent are within the call that it works
        on.
        """
        return self._content.calls.tree()

    @property
    def model(self) -> str | None:
        """The name of the model that answered last, sub-agents aside; None if it is not known."""
        return self._content.model

    @property
    def model_calls(self) -> tuple[Usage, ...]:
        """The usage of each model call, sub-agents' too, after `ask` or with `usage` included."""
        return tuple(self._content.usages)

    @property
    def usage(self) -> Usage | None:
        """The sum of `model_calls`; None if there are none."""
        each = self._content.usages
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
        self._content = self._committed.copy()
        self._events = [event for event in self._events if not _is_behind(event.id, to)]
        for event in self._events:
            self._content.add(event, self._limits)


def _is_behind(event_id: str, to: Place) -> bool:
    """Return True if the event is a later one of the same run; one without a place never is."""
    if _ID.fullmatch(event_id) is None:
        return False
    place = Place.parse(event_id)
    return place.run == to.run and place > to
