"""Whether a server tool may be called: `allow`, `deny`, or `ask` a person. Pure."""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Final, Literal, TypeAlias, get_args

from passback.core.errors import ConfigurationError
from passback.core.messages import RunRef, ToolCall, ToolSpec

Decision: TypeAlias = Literal["allow", "deny", "ask"]
DECISIONS: Final[tuple[str, ...]] = get_args(Decision)


@dataclass(frozen=True, slots=True)
class Permission:
    """A decision, and its reason: what the model is told of a call that is denied, or the person who is asked.

    Raises:
        ConfigurationError: a decision that there is not.
    """

    decision: Decision
    reason: str = ""

    def __post_init__(self) -> None:
        """What is neither must never pass for `allow`."""
        if self.decision not in DECISIONS:
            raise ConfigurationError(f"a permission has to be one of {', '.join(DECISIONS)}")


ALLOWED: Final = Permission("allow")

MOST_LASTING: Final = 64
"""Lasting permissions of a conversation: about a tool whose own is gone a person is asked again."""

REASON_CHARACTERS: Final = 1000
"""What is kept of a reason beside the messages, which have all of it."""


def permission_of(given: Permission | Decision, /) -> Permission:
    """What an author wrote. Raises ConfigurationError for a decision that there is not."""
    return given if isinstance(given, Permission) else Permission(given)


Rule: TypeAlias = Callable[
    [ToolCall, RunRef], Permission | Decision | Awaitable[Permission | Decision | None] | None
]
"""Judges a call; None: it has no opinion, and the next rule is asked. It may be async; else it is called in a thread."""


def declaration_digest(spec: ToolSpec, /) -> str:
    """Of what is declared of a tool, its name apart: tools whose descriptions and schemas are the same have the same."""
    declared = json.dumps([spec.description, spec.parameters], sort_keys=True)
    return sha256(declared.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class LastingPermission:
    """A person's answer for all calls to come of a tool, in one conversation, as long as its declaration has this `digest`.

    `reason` is why they are denied.
    """

    tool: str
    digest: str
    approved: bool
    reason: str = ""


Lasting: TypeAlias = Mapping[tuple[str, str], LastingPermission]
"""What people have answered for good, by the tool's name and the digest of its declaration."""


def with_newest(
    known: Iterable[LastingPermission], newer: Iterable[LastingPermission], /
) -> tuple[LastingPermission, ...]:
    """Join lasting permissions, oldest first: of one tool and declaration the newest counts. The oldest of too many go."""
    newest: dict[tuple[str, str], LastingPermission] = {}
    for each in (*known, *newer):
        newest.pop((each.tool, each.digest), None)
        newest[each.tool, each.digest] = each
    return tuple(newest.values())[-MOST_LASTING:]


def decision_for(name: str, decisions: Mapping[str, Decision], /) -> Decision | None:
    """What the first pattern that fits a tool's name says; None: none fits."""
    return next((decisions[each] for each in decisions if fnmatchcase(name, each)), None)


def by_pattern(decisions: Mapping[str, Decision], /) -> Rule:
    """A rule that goes by the tool's name: the first of the patterns (`delete_*`, `*`) that fits it decides.

    Raises:
        ConfigurationError: a decision that there is not.
    """
    rules = dict(decisions)
    for pattern, decision in rules.items():
        if decision not in DECISIONS:
            raise ConfigurationError(
                f"the permission of {pattern!r} has to be one of {', '.join(DECISIONS)}"
            )

    # async, so that no thread is needed for it
    async def judge(call: ToolCall, _run: RunRef, /) -> Decision | None:
        return decision_for(call.name, rules)

    return judge
