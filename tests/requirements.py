"""The promises of the design as data. A test says which one it holds to: `@pytest.mark.promise("P4")`.

`test_requirements.py` sees to it that every promise has tests and every mark names a promise.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Promise:
    """What users may rely on.

    Args:
        id: what a mark names.
        text: the promise, in one sentence.
        source: where it is explained.
        later: the part that is not built yet; its tests come with it.
    """

    id: str
    text: str
    source: str = "docs/explanation/design.md, Promises"
    later: str = ""


PROMISES = (
    Promise(
        "P1",
        "A run never waits for a client: it ends handed back, and the answers start the next run.",
    ),
    Promise(
        "P2", "What the client owes changes only together with the transcript, and follows from it."
    ),
    Promise(
        "P3",
        "A stream that is cut anywhere and resumed with its cursor adds up to the uncut stream.",
    ),
    Promise(
        "P4",
        "The end of a client tool's call is a commitment: its arguments fit the declared schema, and its result may be "
        "posted in the same instant.",
    ),
    Promise(
        "P5", "A transcript always answers each call once, next to it, or owes it at the tail."
    ),
    Promise(
        "P6",
        "Every run has exactly one terminal event, the last of its log, also when its worker died.",
    ),
    Promise(
        "P7",
        "A closed connection never stops a run; cancelling does, from any worker, and closes the model's stream.",
    ),
    Promise(
        "P8",
        "A repeated post is one run.",
    ),
    Promise(
        "P9", "The first result of a call wins: an equal repeat joins, another one is a conflict."
    ),
    Promise(
        "P10",
        "A killed worker loses nothing that was committed: another takes its run over, and its own late writes are refused.",
    ),
    Promise("P11", "Every buffer has a limit."),
    Promise(
        "P12",
        "Bad input changes nothing and is answered before the stream starts; a later failure is one event.",
    ),
    Promise(
        "P13",
        "Nothing in a client's post is trusted: results count only for calls that the server issued.",
    ),
    Promise("P14", "Client tools cannot shadow server tools, however their names are written."),
    Promise("P15", "Every write to the store may be sent twice."),
    Promise(
        "P16",
        "A conversation is changed in one way: a pure function decides a write from its head, and a store applies it "
        "whole if its guard holds, once.",
    ),
    Promise(
        "P17",
        "Another owner's things are unknown things: they get the same answer on every route, socket and cursor.",
    ),
    Promise(
        "P18",
        "What was said on one wire can be read and continued on all: no wire keeps a conversation of its own.",
    ),
)
