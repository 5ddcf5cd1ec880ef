"""Translation of Redis errors into StoreErrors, without their texts: these may quote a record."""

import re
from collections.abc import Mapping

from redis import exceptions as redis

from passback.core.errors import StoreError, StoreFull, StoreUnavailable

REDIS_ERRORS = (redis.RedisError, redis.RedisClusterException)

_DAMAGED = StoreError, "the conversation's keys in Redis are damaged"
_FULL = StoreFull, "Redis has no memory left"
_REFUSED = StoreError, "Redis refuses the user, the password or the command"
_UNAVAILABLE = StoreUnavailable, "Redis cannot be reached, or takes no writes now"

# redis-py has classes for some codes, and takes the code out of their text.
_BY_CLASS: Mapping[type[Exception], tuple[type[StoreError], str]] = {
    redis.AuthenticationError: _REFUSED,
    redis.AuthenticationWrongNumberOfArgsError: _REFUSED,
    redis.AuthorizationError: _REFUSED,
    redis.NoPermissionError: _REFUSED,
    redis.OutOfMemoryError: _FULL,
    redis.ReadOnlyError: _UNAVAILABLE,
    redis.ClusterError: _UNAVAILABLE,
    redis.RedisClusterException: _UNAVAILABLE,
    redis.TryAgainError: _UNAVAILABLE,
    redis.AskError: _UNAVAILABLE,
    redis.ConnectionError: _UNAVAILABLE,
    redis.TimeoutError: _UNAVAILABLE,
}
_BY_CODE: Mapping[str, tuple[type[StoreError], str]] = {
    **dict.fromkeys(("NOAUTH", "WRONGPASS", "NOPERM"), _REFUSED),
    **dict.fromkeys(("WRONGTYPE", "PBDAMAGED"), _DAMAGED),
    **dict.fromkeys(("BUSY", "MISCONF", "NOREPLICAS", "READONLY", "LOADING"), _UNAVAILABLE),
    **dict.fromkeys(("CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN"), _UNAVAILABLE),
    "OOM": _FULL,
}
# Redis 6.2 wraps an error inside a script: "Error running script ...: -READONLY ...".
_CODE = re.compile(rf"(?:^|[-\s])({'|'.join(_BY_CODE)})\b")


def store_error(error: Exception, /) -> StoreError:
    """Return the error to raise instead of one of `REDIS_ERRORS`."""
    for kind, (made, message) in _BY_CLASS.items():
        if isinstance(error, kind):
            return made(message, retry_after=1 if made is StoreUnavailable else None)
    found = _CODE.search(str(error))
    if found is None:
        return StoreError(f"Redis answered with an error ({type(error).__name__})")
    made, message = _BY_CODE[found[1]]
    return made(message, retry_after=1 if made is StoreUnavailable else None)


def is_closed_socket(error: RuntimeError, /) -> bool:
    """Return whether uvloop raised this for a connection that broke while it was opened.

    uvloop has no class for it.
    """
    return str(error).endswith("the handler is closed")
