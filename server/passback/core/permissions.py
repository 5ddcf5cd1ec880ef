"""Whether a server tool may be called: `allow`, `deny`, or `ask` a person. Pure."""

import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Final, Literal, TypeAlias, get_args

from passback.core.errors import ConfigurationError, InvalidRequest
from passback.core.messages import RunRef, ToolCall, ToolSpec
from passback.core.values import value

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

MOST_APPROVALS: Final = 64
"""Approvals for good of a conversation: about a tool whose own is gone a person is asked again."""

MOST_DENIALS: Final = 64
"""Denials for good of a conversation: none goes for a newer one, which is refused instead."""

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
    """A person's answer for all calls to come of a tool, in one conversation.

    An approval counts as long as the tool's declaration has this `digest`, a denial whatever the declaration is; `reason`
    is why they are denied.
    """

    tool: str
    digest: str
    approved: bool
    reason: str = ""


@value
class Lasting:
    """Answers for good, as calls are judged by them.

    Args:
        denials: by the tool's name alone: who gives a tool another declaration does not undo them.
        approvals: the names of tools, each with the digest of the declaration that was approved.
    """

    denials: Mapping[str, LastingPermission] = field(default_factory=dict[str, LastingPermission])
    approvals: Collection[tuple[str, str]] = ()

    @classmethod
    def of(cls, answers: Collection[LastingPermission], /) -> "Lasting":
        """Sort answers as `with_newest` gives them."""
        return cls(
            {each.tool: each for each in answers if not each.approved},
            {(each.tool, each.digest) for each in answers if each.approved},
        )


def with_newest(
    known: Iterable[LastingPermission], newer: Iterable[LastingPermission], /
) -> tuple[LastingPermission, ...]:
    """Join lasting permissions, oldest first.

    A denial replaces all earlier answers on its tool, and is replaced by any newer one; an approval replaces that of the
    same declaration. The oldest of too many approvals go. No denial does: `refuse_too_many_denials` bounds them.
    """
    kept: list[LastingPermission] = []
    denied: set[str] = set()
    allowed: set[str] = set()
    approved: set[tuple[str, str]] = set()
    for each in reversed((*known, *newer)):
        if each.tool in denied:
            continue
        if not each.approved:
            denied.add(each.tool)
            if each.tool not in allowed:
                kept.append(each)
            continue
        allowed.add(each.tool)
        declared = (each.tool, each.digest)
        if declared not in approved and len(approved) < MOST_APPROVALS:
            approved.add(declared)
            kept.append(each)
    return tuple(reversed(kept))


def refuse_too_many_denials(
    known: Iterable[LastingPermission], newer: Iterable[LastingPermission], /
) -> None:
    """Return if all denials for good can be kept; raise InvalidRequest if `newer` are too many beside those `known`."""
    if sum(not each.approved for each in with_newest(known, newer)) > MOST_DENIALS:
        raise InvalidRequest(
            f"always: {MOST_DENIALS} tools are denied for good in this conversation, and no more can be."
            " Leave out `always` to deny this call alone, or take back a denial first"
        )


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
