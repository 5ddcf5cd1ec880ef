"""Scenes of the model: who posts what, and what goes wrong, each small enough to be searched."""

from dataclasses import replace
from functools import cache
from typing import Final

from tests.model.actors import Answer, Claim, Say, Scene, Stop, Stray, Switch
from tests.model.checker import Result, Search
from tests.support.lanes import LANE

from passback.core.conversation.tree import NO_MESSAGE
from passback.core.values import value

FIRST = Say("once 1", key="first")

REPEATED_POSTS = Scene(
    (
        (replace(FIRST, repeats=1),),
        (FIRST, Say("once 2", named=True), Say("other", key="first")),
    ),
    answers=("text", "server"),
    speaks=True,
)
"""Two clients post the same with the same key, and one of them something else with it."""

RESULTS = Scene(
    ((replace(FIRST, repeats=1), Answer(repeats=1)), (Answer("other"), Stray())),
    answers=("client",),
)
"""Two clients answer the same calls, each in its own way."""

PARTIAL_RESULTS = Scene(
    ((FIRST, Answer(only_first=True, key="half"), Answer()), (Answer(), Say("more"))),
    answers=("two",),
    turns=1,
)
"""Results come one by one, from two clients."""

QUEUED_POSTS = Scene(
    (
        (FIRST, Say("once 2", key="second", on_busy="interrupt", repeats=1)),
        (Say("once 3", named=True, on_busy="enqueue", repeats=1), Stop(waiting=True)),
    ),
    answers=("client",),
    turns=1,
)
"""Posts wait and interrupt, while the client owes results; one is cancelled."""

CANCELLED_RUNS = Scene(
    (
        (FIRST, Answer()),
        (Stop(repeats=1), Say("once 2", key="second", on_busy="enqueue"), Stop(waiting=True)),
    ),
    answers=("both",),
    turns=1,
    speaks=True,
)
"""Runs are cancelled, twice, while they work and while they wait."""

TIMEOUTS = Scene(
    ((FIRST, Answer(repeats=1)), (Answer("other"), Say("more", on_busy="enqueue"))),
    answers=("client",),
    turns=1,
    answer_in_time=True,
)
"""Results come too late."""

RESULTS_THAT_WAIT = Scene(
    (
        (FIRST, Say("once 2", key="second", brings="done", on_busy="enqueue"), Answer()),
        (Say("once 3", key="third", on_busy="enqueue"), Stop(waiting=True)),
    ),
    answers=("client",),
    turns=1,
)
"""A result waits with the message that came with it, and that post is cancelled."""

LOST_WORKERS = Scene(
    ((replace(FIRST, repeats=1),),),
    answers=("server", "client"),
    recoveries=2,
    ticks=2,
    speaks=True,
    leaves=True,
)
"""Workers crash, stand still, or leave a run to others."""

APPROVALS = Scene(
    ((FIRST, Answer(repeats=1)), (Answer("no"), Say("stop", on_busy="interrupt"))),
    answers=("ask",),
    turns=1,
)
"""One client allows a call, and the other does not."""

FAILURES = Scene(
    ((FIRST, Say("once 2", key="second", on_busy="enqueue")), (Stop(),)),
    answers=("fail", "text"),
    speaks=True,
    turns=1,
)
"""The model fails, with a part of its answer in the log."""

ROLLBACKS = Scene(
    (
        (FIRST, Answer(), Say("once 3", named=True, on_busy="rollback")),
        (Say("once 2", key="second", on_busy="rollback"),),
    ),
    answers=("client",),
    turns=1,
)
"""Runs are taken back, also those that answers have begun."""

BRANCHES = Scene(
    (
        (FIRST, Say("once 2", key="second", after=NO_MESSAGE, repeats=1), Answer()),
        (Answer(), Say("", after=0)),
    ),
    answers=("client",),
    turns=1,
)
"""A message is edited while its answer is owed, and the first one is answered anew."""

BRANCHES_THAT_WAIT = Scene(
    (
        (FIRST, Say("once 2", key="second", after=0, on_busy="interrupt")),
        (Say("once 3", named=True, after=NO_MESSAGE, on_busy="enqueue"), Answer()),
    ),
    answers=("client",),
    turns=1,
)
"""Posts that begin a branch wait for a run, or interrupt it."""

SWITCHES = Scene(
    (
        (FIRST, Say("once 2", key="second", after=NO_MESSAGE), Answer(repeats=1)),
        (Switch(0, repeats=1), Say("once 3", key="third", on_busy="rollback"), Switch(0)),
    ),
    answers=("client",),
    turns=1,
)
"""One client goes on with a branch, and the other one switches to another."""

CLAIMS = Scene(
    (
        (FIRST, Claim(repeats=1), Answer()),
        (Claim(repeats=1), Claim(releases=True), Answer("other")),
    ),
    answers=("client",),
    turns=1,
)
"""Two clients claim the same call, and both answer it."""

SCENES: Final[dict[str, Scene]] = {
    "repeated posts": REPEATED_POSTS,
    "results": RESULTS,
    "partial results": PARTIAL_RESULTS,
    "queued posts": QUEUED_POSTS,
    "cancelled runs": CANCELLED_RUNS,
    "timeouts": TIMEOUTS,
    "results that wait": RESULTS_THAT_WAIT,
    "lost workers": LOST_WORKERS,
    "approvals": APPROVALS,
    "failures": FAILURES,
    "rollbacks": ROLLBACKS,
    "branches": BRANCHES,
    "branches that wait": BRANCHES_THAT_WAIT,
    "switches": SWITCHES,
    "claims": CLAIMS,
}


def crashing(scene: Scene) -> Scene:
    """Return a scene in which a worker crashes, and leases end, unless it says how often."""
    return replace(scene, crashes=1, ticks=scene.ticks or 1)


def on_a_bad_network(scene: Scene) -> Scene:
    """Return a scene in which an answer of the store is lost, and a write comes late."""
    return replace(scene, losses=1, delays=1, ticks=0)


def with_all_faults(scene: Scene) -> Scene:
    """Return a scene in which each of these may come in between the others."""
    return replace(scene, crashes=1, ticks=2, losses=1, delays=1)


def with_many_faults(scene: Scene) -> Scene:
    """Return a scene for the night."""
    return replace(scene, crashes=2, ticks=3, losses=1, delays=1, recoveries=2)


@value
class Lookout:
    """A scene to search, up to a number of states; None: all there are."""

    scene: Scene
    limit: int | None

    def search(self) -> Result:
        return _search(self.scene, self.limit or ALL_STATES)


@cache
def _search(scene: Scene, limit: int) -> Result:
    return Search(scene).run(limit)


ALL_STATES: Final = 10_000_000
"""More than there are where all are searched."""

MOST: Final = 8_000 if LANE != "nightly" else None
"""States of a search that is not for the night: those that are near."""

MOST_OF_MANY: Final = MOST or 100_000
"""States of a search that would never end."""


def lookouts_of_crashes() -> dict[str, Lookout]:
    """Return searches of the states of each scene: in the night of all of them."""
    return {name: Lookout(crashing(each), _limit(name)) for name, each in SCENES.items()}


def lookouts_of_networks() -> dict[str, Lookout]:
    """Return such searches on a bad network, and of the first steps with all faults."""
    found: dict[str, Lookout] = {}
    for name, scene in SCENES.items():
        found[name] = Lookout(on_a_bad_network(scene), _limit(name))
        found[f"{name}, crashes"] = Lookout(with_all_faults(scene), MOST_OF_MANY // 4)
    return found


def _limit(name: str) -> int | None:
    return MOST_OF_MANY if name in TOO_MANY else MOST


TOO_MANY: Final = frozenset({"repeated posts", "cancelled runs"})
"""Scenes of more states than a search looks at, also in the night."""
