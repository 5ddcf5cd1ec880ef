"""Check of the Redis servers: versions, stored data, and settings that may lose data."""

import re
from collections.abc import Sequence

from passback.core.errors import ConfigurationError, StoreError, StoreUnavailable
from passback.stores.redis.link import RedisLink
from passback.stores.redis.scripts import LAYOUT, KeyNames

OLDEST_VERSION = (6, 2)
SAMPLE_SIZE = 1000  # keys of each server among which conversations of another layout are looked for
UNVERIFIED = (
    "Redis does not permit CONFIG GET: whether it keeps what it has acknowledged (appendonly, "
    "appendfsync) and evicts nothing (maxmemory-policy) could not be verified."
)
NO_FILE = (
    "Redis has no append-only file (appendonly no): when it stops or crashes, everything since its "
    "last snapshot is lost, answers that clients have seen among it. Set appendonly yes."
)
LATE_SYNC = (
    "Redis syncs its append-only file once a second (appendfsync everysec): about one second of "
    "acknowledged messages may be lost when it crashes. appendfsync always loses nothing."
)
NO_SYNC = (
    "Redis leaves syncing its append-only file to the system (appendfsync no): many seconds of "
    "acknowledged messages may be lost when the machine crashes. appendfsync always loses nothing."
)
EVICTS = (
    "Redis evicts keys when its memory is full (maxmemory-policy {policy}): conversations would "
    "vanish without notice. Set maxmemory-policy noeviction, or allow it explicitly."
)


async def check_servers(
    link: RedisLink, names: KeyNames, /, *, allow_eviction: bool
) -> Sequence[str]:
    """Check every server that takes writes; return warnings.

    Raises:
        ConfigurationError: a server is too old, may evict keys, refuses the user, or has
            conversations of another layout.
        StoreError: a server does not answer.
    """
    await _check_versions(link)
    await _check_layout(link, names)
    try:
        policies = await _read_setting(link, "maxmemory-policy")
        files = await _read_setting(link, "appendonly")
        syncs = await _read_setting(link, "appendfsync")
    except StoreUnavailable:
        raise
    except StoreError:
        return [UNVERIFIED]
    evicting = sorted(policies - {"noeviction"})
    if evicting and not allow_eviction:
        raise ConfigurationError(EVICTS.format(policy=evicting[0]))
    warnings = [EVICTS.format(policy=policy) for policy in evicting]
    by_setting = ((files, "no", NO_FILE), (syncs, "no", NO_SYNC), (syncs, "everysec", LATE_SYNC))
    worst = [warning for found, setting, warning in by_setting if setting in found]
    return warnings + worst[:1]


async def _check_versions(link: RedisLink) -> None:
    try:
        infos = await link.on_each_server("INFO", "server")
    except StoreUnavailable:
        raise
    except StoreError as error:
        raise ConfigurationError(error.message) from error
    for version in (str(info["redis_version"]) for info in infos):
        if tuple(map(int, re.findall(r"\d+", version)[:2])) < OLDEST_VERSION:
            raise ConfigurationError(f"Redis {version} is too old: 6.2 or newer is needed")


async def _check_layout(link: RedisLink, names: KeyNames) -> None:
    """Refuse conversations that another version has written.

    A sample finds them: a server has those of one version, because none starts on another's.
    """
    pattern = names.state("*")
    try:
        samples = await link.on_each_server("SCAN", 0, "MATCH", pattern, "COUNT", SAMPLE_SIZE)
        keys = [key for _, found in samples for key in found[:1]]
        states = [await link.command("HMGET", key, "version", "layout") for key in keys]
    except StoreUnavailable:
        raise
    except StoreError:
        # SCAN is not permitted, or the key is damaged: neither keeps the others from being served
        return
    # without a version it is what an eviction has left over
    if any(version is not None and layout != LAYOUT.encode() for version, layout in states):
        raise ConfigurationError(
            f"the conversations in Redis under the prefix {names.prefix!r} are of another version "
            "of passback: use the passback that wrote them, another prefix, or another database"
        )


async def _read_setting(link: RedisLink, name: str) -> set[str]:
    """Return the values that a setting has on the servers."""
    replies = await link.on_each_server("CONFIG GET", name)
    return {str(reply[name]) for reply in replies}
