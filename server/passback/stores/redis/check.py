"""Settings of a Redis server that would break a promise, in plain words."""

import re
from collections.abc import Sequence

from passback.core.errors import ConfigurationError, StoreError, StoreUnavailable
from passback.stores.redis.link import RedisLink

OLDEST = (6, 2)
UNVERIFIED = (
    "Redis does not permit CONFIG GET: whether it keeps what it has acknowledged (appendonly, appendfsync) "
    "and evicts nothing (maxmemory-policy) could not be verified."
)
NO_FILE = (
    "Redis has no append-only file (appendonly no): when it stops or crashes, everything since its last "
    "snapshot is lost, answers that clients have seen among it. Set appendonly yes."
)
LATE_SYNC = (
    "Redis syncs its append-only file once a second (appendfsync everysec): about one second of acknowledged "
    "messages may be lost when it crashes. appendfsync always loses nothing."
)
NO_SYNC = (
    "Redis leaves syncing its append-only file to the system (appendfsync no): many seconds of acknowledged "
    "messages may be lost when the machine crashes. appendfsync always loses nothing."
)
EVICTS = (
    "Redis evicts keys when its memory is full (maxmemory-policy {policy}): conversations would vanish without "
    "notice. Set maxmemory-policy noeviction, or allow it explicitly."
)


async def check_servers(link: RedisLink, /, *, allow_eviction: bool) -> Sequence[str]:
    """Look at every server that takes writes; gives warnings.

    Raises:
        ConfigurationError: one is too old, may evict our keys, or refuses us.
        StoreError: one cannot be asked.
    """
    await _check_versions(link)
    try:
        policies = await _settings(link, "maxmemory-policy")
        files = await _settings(link, "appendonly")
        syncs = await _settings(link, "appendfsync")
    except StoreUnavailable:
        raise
    except StoreError:
        return [UNVERIFIED]
    evicting = sorted(policies - {"noeviction"})
    if evicting and not allow_eviction:
        raise ConfigurationError(EVICTS.format(policy=evicting[0]))
    return [EVICTS.format(policy=policy) for policy in evicting] + _durability(files, syncs)


async def _check_versions(link: RedisLink) -> None:
    try:
        infos = await link.on_each_server("INFO", "server")
    except StoreUnavailable:
        raise
    except StoreError as error:
        raise ConfigurationError(error.message) from error
    for version in (str(info["redis_version"]) for info in infos):
        if tuple(map(int, re.findall(r"\d+", version)[:2])) < OLDEST:
            raise ConfigurationError(f"Redis {version} is too old: 6.2 or newer is needed")


async def _settings(link: RedisLink, name: str) -> set[str]:
    """The values that a setting has on the servers."""
    replies = await link.on_each_server("CONFIG GET", name)
    return {str(reply[name]) for reply in replies}


def _durability(files: set[str], syncs: set[str]) -> list[str]:
    if "no" in files:
        return [NO_FILE]
    if "no" in syncs:
        return [NO_SYNC]
    return [LATE_SYNC] if "everysec" in syncs else []
