"""Breadth-first search over all interleavings of the actors, up to the names of ids.

Actors meet in the conversation alone, so what one of them can do depends on it and on that actor.
Each such pair is played once, by the rules of the server; a state is a conversation with a set of
actors, as numbers. The first violation that is found has a shortest path.
"""

from array import array
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from tests.model import branch_invariants, invariants
from tests.model.actors import (
    DOOMED,
    Actor,
    Claim,
    Client,
    Clock,
    Cost,
    Late,
    Recovery,
    Run,
    Scene,
    Sent,
    Step,
    arrival,
    name_of,
    tick,
)
from tests.model.apply_write import Conversation
from tests.model.branch_invariants import claimed_twice
from tests.model.invariants import Broken, is_unsettled
from tests.model.judging import client_steps, first_client, recovery_steps
from tests.model.names import (
    Renames,
    frozen,
    is_known_to_others,
    renamed_conversation,
    renamed_value,
)
from tests.model.working import is_owner, run_steps
from typing_extensions import override

from passback.core.conversation.store import Append, Guard, Write
from passback.core.errors import PassbackError

COSTS: Final[dict[Cost, int]] = {
    "free": 0,
    "crash": 1,
    "loss": 1 << 4,
    "delay": 1 << 8,
    "tick": 1 << 12,
}
"""What a step takes from the budget of a state: four bits for each kind."""

GONE = -1
IN_CONVERSATIONS: Final = (*invariants.IN_CONVERSATIONS, *branch_invariants.IN_CONVERSATIONS)
IN_STEPS: Final = (*invariants.IN_STEPS, *branch_invariants.IN_STEPS)


class Violation(NamedTuple):
    """A broken promise, and the labels of a shortest path to it."""

    broken: Broken
    path: tuple[str, ...]

    @override
    def __str__(self) -> str:
        lines = [f"{number:3} {label}" for number, label in enumerate(self.path, 1)]
        return "\n".join([f"{self.broken.promise}: {self.broken.what}", *lines])


@dataclass
class Result:
    """What a search has seen.

    Attributes:
        states: that were looked at; `complete`: there are no others.
        labels: of the steps that were played.
    """

    states: int
    complete: bool
    depth: int
    conversations: int
    pairs: int
    labels: frozenset[str]
    violation: Violation | None = None


class _Moves:
    """What becomes of the knowledge of others when somebody has written."""

    def __init__(
        self, space: "Space", conversation: int, names: Renames, *, overtakes: bool
    ) -> None:
        self._space = space
        self._conversation = conversation
        self._overtakes = overtakes
        self._names = {old: new for old, new in names.items() if is_known_to_others(old)}
        self._known: dict[int, int] = {}

    def after(self, actor: int) -> int:
        """Return the actor as it knows the conversation by its names now; `GONE`: it is gone."""
        moved = self._known.get(actor)
        if moved is None:
            space = self._space
            moved = space.actor(
                space.actors[actor],
                self._conversation,
                self._names,
                overtaken=self._overtakes,
            )
            self._known[actor] = moved
        return moved


class Move(NamedTuple):
    """A step with numbers. `moves` is None where nothing is written."""

    label: int
    cost: int
    conversation: int
    becomes: tuple[int, ...]
    moves: _Moves | None


class Pair(NamedTuple):
    """What an actor can do with a conversation; `owns`: it is a run with the lease."""

    moves: tuple[Move, ...]
    owns: bool


_Names: TypeAlias = tuple[int, bool, tuple[tuple[bytes, bytes], ...]]


class BrokenPromise(Exception):
    def __init__(self, broken: Broken, label: str) -> None:
        super().__init__(broken.what)
        self.broken = broken
        self.label = label


class Space:
    """Numbers for all conversations and actors, and what can be done with each pair of them."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.conversations: list[Conversation] = []
        self.actors: list[Actor] = []
        self.are_runs: list[bool] = []
        self.labels: list[str] = []
        self.pairs: dict[int, Pair] = {}
        self._conversation_numbers: dict[Conversation, int] = {}
        self._names_in: list[Renames] = []
        self._actor_numbers: dict[Hashable, int] = {}
        self._label_numbers: dict[str, int] = {}
        self._moves: dict[_Names, _Moves] = {}

    def conversation(self, raw: Conversation, label: str) -> tuple[int, Renames]:
        """Return the number of a conversation, and the names that its ids have there.

        Raises:
            BrokenPromise: it is one that there must not be.
        """
        renamed, names = renamed_conversation(raw)
        number = self._conversation_numbers.get(renamed)
        if number is None:
            number = self._conversation_numbers[renamed] = len(self.conversations)
            self.conversations.append(renamed)
            self._names_in.append({name: name for name in names.values()})
            for check in IN_CONVERSATIONS:
                _raise_if_broken(check(renamed), label)
        return number, names

    def actor(
        self,
        raw: Actor,
        conversation: int,
        names: Renames | None = None,
        *,
        overtaken: bool = False,
    ) -> int:
        """Return the number of an actor whose ids have new names; `GONE`: nothing is left of it.

        `overtaken`: somebody has changed the version since it judged.
        """
        settled = _settled(raw, self.conversations[conversation], names, overtaken=overtaken)
        if settled is None:
            return GONE
        known = self._names_in[conversation] if names is None else names
        renamed = renamed_value(settled, known)
        key = frozen(renamed)
        number = self._actor_numbers.get(key)
        if number is None:
            number = self._actor_numbers[key] = len(self.actors)
            self.actors.append(renamed)
            self.are_runs.append(isinstance(renamed, Run))
        return number

    def pair(self, conversation: int, actor: int) -> Pair:
        key = conversation << 32 | actor
        found = self.pairs.get(key)
        if found is None:
            known, does = self.conversations[conversation], self.actors[actor]
            try:
                moves = tuple(self._played(conversation, does))
                owns = isinstance(does, Run) and is_owner(self.scene, known, does)
            except (AssertionError, PassbackError) as error:
                raised = Broken("P16", f"{name_of(does)}: {type(error).__name__}: {error}")
                raise BrokenPromise(raised, "") from error
            found = self.pairs[key] = Pair(moves, owns)
        return found

    def _played(self, conversation: int, actor: Actor) -> Iterator[Move]:
        known = self.conversations[conversation]
        for step in steps(self.scene, known, actor):
            for check in IN_STEPS:
                _raise_if_broken(check(known, actor, step), step.label)
            label = self._label_numbers.setdefault(step.label, len(self.labels))
            if label == len(self.labels):
                self.labels.append(step.label)
            number, moves, names = conversation, None, None
            if step.after is not known:
                number, names = self.conversation(step.after, step.label)
                moves = self._moves_to(number, names, step.after.version != known.version)
            becomes = [self.actor(each, number, names) for each in step.becomes]
            left = tuple(each for each in becomes if each != GONE)
            yield Move(label, COSTS[step.cost], number, left, moves)

    def _moves_to(self, conversation: int, names: Renames, overtakes: bool) -> _Moves:
        key = (
            conversation,
            overtakes,
            tuple(sorted((old, new) for old, new in names.items() if is_known_to_others(old))),
        )
        known = self._moves.get(key)
        if known is None:
            known = self._moves[key] = _Moves(self, conversation, names, overtakes=overtakes)
        return known


def steps(scene: Scene, known: Conversation, actor: Actor) -> Iterator[Step]:
    match actor:
        case Client():
            return client_steps(scene, known, actor)
        case Run():
            return run_steps(scene, known, actor)
        case Recovery():
            return recovery_steps(known, actor)
        case Late():
            return arrival(known, actor)
        case Clock():
            return tick(known)


def _raise_if_broken(broken: Broken | None, label: str) -> None:
    if broken is not None:
        raise BrokenPromise(broken, label)


def _settled(
    actor: Actor, known: Conversation, names: Renames | None, *, overtaken: bool
) -> Actor | None:
    """Return an actor without what no longer matters: a write that is refused for ever.

    Versions only grow, and a fence that is not held is never held again.
    """
    if isinstance(actor, Clock):
        return actor
    if isinstance(actor, Client) and actor.holds is not None and actor.holds[1] <= known.now:
        actor = actor._replace(holds=None)
    sent = actor.sent
    if sent is None or sent.applied or _may_hold(sent.write, known, names, overtaken=overtaken):
        return actor
    if isinstance(actor, Late):
        return None
    return actor._replace(sent=Sent(DOOMED, "write"))


def _may_hold(
    write: Write | Append, known: Conversation, names: Renames | None, *, overtaken: bool
) -> bool:
    guard = Guard(fence=write.fence) if isinstance(write, Append) else write.guard
    fence, version = guard.fence, guard.version
    if fence is not None:
        return _fence_now(fence, names) == (known.lease.fence if known.lease else "")
    return version is None or (version == known.version and not overtaken)


def _fence_now(fence: str, names: Renames | None) -> str:
    epoch, _, nonce = fence.partition(":")
    if names is not None:
        nonce = names.get(nonce.encode(), b"?").decode()
    return f"{epoch}:{nonce}"


# ---------------------------------------------------------------- the search
class Search:
    """All states that can be reached, nearest first.

    Args:
        scene: who acts.
    """

    def __init__(self, scene: Scene) -> None:
        self.space = Space(scene)
        self._scene = scene
        self._claims = any(isinstance(i, Claim) for script in scene.clients for i in script)
        self._order: list[bytes] = []
        self._seen: set[bytes] = set()
        self._parents = array("I")
        self._labels = array("I")

    def run(self, limit: int) -> Result:
        """Look at up to `limit` states."""
        looked, violation = 0, None
        try:
            self._add_first()
            while looked < min(limit, len(self._order)):
                self._expand(looked)
                looked += 1
        except BrokenPromise as found:
            labels = self._path(looked) if self._order else ()
            last = (found.label,) if found.label else ()
            violation = Violation(found.broken, (*labels, *last))
        space = self.space
        complete = violation is None and looked == len(self._order)
        depth = len(self._path(looked - 1)) if looked else 0
        return Result(
            looked,
            complete,
            depth,
            len(space.conversations),
            len(space.pairs),
            frozenset(space.labels),
            violation,
        )

    def _add_first(self) -> None:
        scene, space = self._scene, self.space
        number, _ = space.conversation(Conversation(), "")
        clients = [first_client(scene, name) for name in scene.scripts]
        actors: list[Actor] = [*clients, *[Recovery()] * scene.recoveries, Clock()]
        numbers = [space.actor(each, number) for each in actors]
        budget = (
            scene.crashes * COSTS["crash"]
            + scene.losses * COSTS["loss"]
            + scene.delays * COSTS["delay"]
            + scene.ticks * COSTS["tick"]
        )
        self._add(number, budget, sorted(numbers), 0, 0)

    def _add(
        self, conversation: int, budget: int, actors: list[int], parent: int, label: int
    ) -> None:
        key = array("I", (conversation, budget, *actors)).tobytes()
        if key not in self._seen:
            self._seen.add(key)
            self._order.append(key)
            self._parents.append(parent)
            self._labels.append(label)

    def _expand(self, index: int) -> None:
        conversation, budget, *actors = array("I", self._order[index])
        space = self.space
        owners, progress = 0, False
        for place, actor in enumerate(actors):
            pair = space.pairs.get(conversation << 32 | actor) or space.pair(conversation, actor)
            owners += pair.owns
            if place and actors[place - 1] == actor:
                continue
            others = actors[:place] + actors[place + 1 :]
            for move in pair.moves:
                cost = move.cost
                if cost and not budget & cost * 15:
                    continue
                after = self._actors_after(others, move)
                if move.conversation != conversation or after != actors:
                    progress = progress or not cost or cost == COSTS["tick"]
                    self._add(move.conversation, budget - cost, after, index, move.label)
        self._check_state(space.conversations[conversation], actors, owners, progress=progress)

    def _check_state(
        self, known: Conversation, actors: list[int], owners: int, *, progress: bool
    ) -> None:
        if owners > 1:
            raise BrokenPromise(
                Broken("one owner", "the store takes the writes of two workers"), ""
            )
        if self._claims:
            clients = [each for n in actors if isinstance(each := self.space.actors[n], Client)]
            if claimed_twice(known, clients):
                raise BrokenPromise(Broken("one claimant", "two clients have claimed one call"), "")
        if not progress and is_unsettled(known):
            raise BrokenPromise(Broken("P10", "nobody goes on with the conversation"), "")

    def _actors_after(self, others: list[int], move: Move) -> list[int]:
        moves = move.moves
        if moves is not None:
            others = [each for each in map(moves.after, others) if each != GONE]
        becomes = move.becomes
        if len(becomes) > 1:  # where no worker is free, the run is lost at once
            runs = self.space.are_runs
            working = sum(runs[each] for each in chain(others, becomes))
            if runs[becomes[-1]] and working > self._scene.workers:
                becomes = becomes[:-1]
        return sorted((*others, *becomes))

    def _path(self, index: int) -> tuple[str, ...]:
        labels: list[str] = []
        while index:
            labels.append(self.space.labels[self._labels[index]])
            index = self._parents[index]
        return tuple(reversed(labels))
