"""Settings that are lists of words: each parser raises a ValueError that says what it has to be."""

import re
import typing
from collections.abc import Mapping

from passback.core.messages import OwnerId
from passback.core.permissions import DECISIONS, Decision


def parse_words(value: str) -> tuple[str, ...]:
    return tuple(word for word in re.split(r"[,\s]+", value) if word)


def parse_origins(value: str) -> frozenset[str]:
    for origin in (origins := parse_words(value)):
        if not re.fullmatch(r"https?://[^/\s*]+", origin):
            raise ValueError("must be exact origins such as https://app.example.com")
    return frozenset(origins)


def parse_hosts(value: str) -> frozenset[str]:
    for host in (hosts := parse_words(value.lower())):
        if not re.fullmatch(r"[a-z0-9._-]+|\[[0-9a-f:]+\]", host):
            raise ValueError("must be host names without scheme and port")
    return frozenset(hosts)


def parse_keys(value: str) -> Mapping[str, OwnerId]:
    keys: dict[str, OwnerId] = {}
    for entry in parse_words(value):
        owner, colon, key = entry.partition(":")
        if not (owner and colon and len(key) >= 16 and key.isascii()):
            raise ValueError("must be OWNER:KEY, ...; each key of 16 or more ASCII characters")
        if keys.setdefault(key, OwnerId(owner)) != owner:
            raise ValueError(
                f"must be a key of its own for each owner: {keys[key]!r} and {owner!r} have the same one"
            )
    return keys


def parse_roles(value: str) -> frozenset[str]:
    roles = frozenset(parse_words(value))
    if not {"user", "tool"} <= roles <= {"user", "tool", "system"}:
        raise ValueError("must be user,tool or user,tool,system")
    return roles


def parse_permissions(value: str) -> Mapping[str, Decision]:
    permissions: dict[str, Decision] = {}
    for entry in parse_words(value):
        pattern, equals, decision = entry.rpartition("=")
        if not (pattern and equals) or decision not in DECISIONS:
            raise ValueError(f"must be PATTERN=DECISION, ...; decisions are {', '.join(DECISIONS)}")
        permissions[pattern] = typing.cast("Decision", decision)
    return permissions
