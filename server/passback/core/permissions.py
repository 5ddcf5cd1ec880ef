"""Permissions of server tools: a call is allowed, denied, or a person is asked. Pure."""

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
    """A decision and its reason, which is given to the model on `deny` and to the person on `ask`.

    Raises:
        ConfigurationError: the decision is unknown.
    """

    decision: Decision
    reason: str = ""

    def __post_init__(self) -> None:
        """Refuse other decisions: one that is misspelt must never pass for `allow`."""
        if self.decision not in DECISIONS:
            raise ConfigurationError(f"a permission has to be one of {', '.join(DECISIONS)}")


ALLOWED: Final = Permission("allow")

# Lasting approvals of a conversation. The oldest are dropped: a person is asked again.
MAX_APPROVALS: Final = 64

# Lasting denials of a conversation. None is dropped for a newer one, which is refused instead.
MAX_DENIALS: Final = 64

REASON_CHARACTERS: Final = 1000  # of a reason kept in the state; the message has all of it


def as_permission(given: Permission | Decision, /) -> Permission:
    """Return the permission that an author wrote.

    Raises:
        ConfigurationError: the decision is unknown.
    """
    return given if isinstance(given, Permission) else Permission(given)


Rule: TypeAlias = Callable[
    [ToolCall, RunRef], Permission | Decision | Awaitable[Permission | Decision | None] | None
]
"""Judges a call. None: no opinion, the next rule is asked.

A rule may be async; a rule that is not is called in a thread.
"""


def declaration_digest(spec: ToolSpec, /) -> str:
    """Return a digest of a tool's description and schema, but not its name."""
    declared = json.dumps([spec.description, spec.parameters], sort_keys=True)
    return sha256(declared.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class LastingPermission:
    """A person's answer to all later calls of a tool in one conversation.

    An approval holds for the declaration with this `digest`, a denial for any declaration. `reason`
    is that of a denial.
    """

    tool: str
    digest: str
    approved: bool
    reason: str = ""


@value
class LastingIndex:
    """Lasting permissions, indexed to judge calls.

    Args:
        denials: by the tool's name alone, so that a new declaration of a tool does not undo its
            denial.
        approvals: names of tools, each with the digest of the declaration that was approved.
    """

    denials: Mapping[str, LastingPermission] = field(default_factory=dict[str, LastingPermission])
    approvals: Collection[tuple[str, str]] = ()

    @classmethod
    def of(cls, answers: Collection[LastingPermission], /) -> "LastingIndex":
        """Index answers as `merge_lasting` returns them."""
        return cls(
            {each.tool: each for each in answers if not each.approved},
            {(each.tool, each.digest) for each in answers if each.approved},
        )


def merge_lasting(
    known: Iterable[LastingPermission], newer: Iterable[LastingPermission], /
) -> tuple[LastingPermission, ...]:
    """Return lasting permissions with newer ones added, oldest first.

    A denial replaces all earlier answers for its tool and is replaced by any newer answer. An
    approval replaces one of the same declaration. Beyond `MAX_APPROVALS` the oldest approvals are
    dropped. Denials are never dropped: `refuse_too_many_denials` limits them.
    """
    kept: list[LastingPermission] = []
    denied: set[str] = set()
    allowed: set[str] = set()
    approved: set[tuple[str, str]] = set()
    for each in reversed((*known, *newer)):
        if each.tool in denied:  # a newer denial
            continue
        if not each.approved:
            denied.add(each.tool)
            if each.tool not in allowed:  # else a newer approval has undone it
                kept.append(each)
            continue
        allowed.add(each.tool)
        declared = (each.tool, each.digest)
        if declared not in approved and len(approved) < MAX_APPROVALS:
            approved.add(declared)
            kept.append(each)
    return tuple(reversed(kept))


def refuse_too_many_denials(
    known: Iterable[LastingPermission], newer: Iterable[LastingPermission], /
) -> None:
    """Check that all lasting denials can be kept.

    Raises:
        InvalidRequest: `newer` has too many beside `known`.
    """
    if sum(not each.approved for each in merge_lasting(known, newer)) > MAX_DENIALS:
        raise InvalidRequest(
            f"always: {MAX_DENIALS} tools are denied for good in this conversation, "
            "and no more can be."
            " Leave out `always` to deny this call alone, or remove a lasting denial first"
        )


def decision_for(name: str, decisions: Mapping[str, Decision], /) -> Decision | None:
    """Return the decision of the first pattern that matches a tool's name; None if none matches."""
    return next((decisions[each] for each in decisions if fnmatchcase(name, each)), None)


def pattern_rule(decisions: Mapping[str, Decision], /) -> Rule:
    """Return a rule that decides by the first pattern (`delete_*`, `*`) that matches a tool's name.

    Raises:
        ConfigurationError: a decision is unknown.
    """
    rules = dict(decisions)
    for pattern, decision in rules.items():
        if decision not in DECISIONS:
            raise ConfigurationError(
                f"the permission of {pattern!r} has to be one of {', '.join(DECISIONS)}"
            )

    # async, because a plain function would be called in a thread
    async def judge(call: ToolCall, _run: RunRef, /) -> Decision | None:
        return decision_for(call.name, rules)

    return judge
