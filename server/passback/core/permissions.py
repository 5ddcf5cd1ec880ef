"""Whether a server tool may be called: `allow`, `deny`, or `ask` a person. Pure."""

import json
from collections.abc import Awaitable, Callable, Mapping
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


def allowance(name: str, digest: str, /) -> str:
    """What a person allows for good: a tool, as it is declared."""
    return f"{name} {digest}"


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
