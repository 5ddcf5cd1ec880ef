"""The text of an answer, kept right when a part of it is taken back."""

import re
from typing import TYPE_CHECKING, NamedTuple, Self

from passback_client.errors import BadAnswer, LimitExceeded
from passback_client.events import Event, Failure, Left, Output, Rewind, RunEnd, Text, Usage
from passback_client.limits import Limits

if TYPE_CHECKING:
    from pydantic import JsonValue

_ID = re.compile(
    r"(?P<run>.+)\.(?P<epoch>\d{1,15})-(?P<number>\d{1,15})(?:~(?P<piece>\d{1,3}))?", re.ASCII
)


class Place(NamedTuple):
    """Where in its run an event stands; places of one run are ordered."""

    run: str
    epoch: int
    number: int
    piece: int

    @classmethod
    def parse(cls, event_id: str) -> Self:
        """Raises BadAnswer: not an id of a passback server."""
        found = _ID.fullmatch(event_id)
        if found is None:
            raise BadAnswer("the server sent an event without a proper id")
        return cls(
            found["run"], int(found["epoch"]), int(found["number"]), int(found["piece"] or 0)
        )


class Answer:
    """Collects what is said: `feed` it each event of a stream.

    Attributes:
        conversation_id: the conversation, as `ask` knows it.
        outcome: of the last run that ended, as in `RunEnd`.
        failure: with which the last run ended, if it did.
        output: the accepted value, where the answer had to fit an output schema: an object. The text is a draft then.
        left: of the run's limits, as it was told last; `ask` knows it, and who includes `usage`.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.conversation_id: str | None = None
        self.outcome: str | None = None
        self.failure: Failure | None = None
        self.output: JsonValue = None
        self.left: Left | None = None
        self._limit = (limits or Limits()).text_chars
        self._chars = 0
        self._pieces: list[tuple[Place, str]] = []

    def feed(self, event: Event) -> None:
        """Take an event; kinds that change nothing here are passed over.

        Raises:
            LimitExceeded: the text is too long.
        """
        match event:
            case Text(content):
                self._add(Place.parse(event.id), content)
            case Rewind(to):
                self._drop_behind(Place.parse(to))
            case Failure():
                self.failure = event
            case RunEnd(outcome):
                self.outcome = outcome
            case Output(value):
                self.output = value
            case Usage(left=Left() as left):
                self.left = left
            case _:
                pass

    @property
    def texts(self) -> list[str]:
        """What was said in each run that said something."""
        runs: dict[str, list[str]] = {}
        for place, text in self._pieces:
            runs.setdefault(place.run, []).append(text)
        return ["".join(pieces) for pieces in runs.values()]

    @property
    def text(self) -> str:
        """All that was said; the runs between which client tools ran are parted by an empty line."""
        return "\n\n".join(self.texts)

    def _add(self, place: Place, text: str) -> None:
        self._chars += len(text)
        if self._chars > self._limit:
            raise LimitExceeded("the answer's text is too long")
        self._pieces.append((place, text))

    def _drop_behind(self, to: Place) -> None:
        self._pieces = [
            (place, text) for place, text in self._pieces if place.run != to.run or place <= to
        ]
        self._chars = sum(len(text) for _, text in self._pieces)
