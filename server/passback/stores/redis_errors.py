"""What an error of Redis means for the door's callers; its text stays here, it may quote what was sent."""

import re

from redis import exceptions as redis

from passback.core.errors import StoreError, StoreFull, StoreUnavailable

REDIS_ERRORS = (redis.RedisError, redis.RedisClusterException)

# Redis 6.2 wraps an error inside a script: "Error running script ...: -READONLY ...".
_CODE = re.compile(
    r"(?:^|[-\s])"
    r"(OOM|READONLY|LOADING|CLUSTERDOWN|MASTERDOWN|TRYAGAIN|MOVED|ASK|BUSY|MISCONF|NOREPLICAS"
    r"|NOAUTH|WRONGPASS|NOPERM|WRONGTYPE|PBDAMAGED)\b"
)
_REFUSED = {"NOAUTH", "WRONGPASS", "NOPERM"}
_REFUSALS = (redis.AuthenticationError, redis.AuthorizationError, redis.NoPermissionError)
_DAMAGED = {"WRONGTYPE", "PBDAMAGED"}


def store_error(error: Exception, /) -> StoreError:
    """The error to raise instead of one of `REDIS_ERRORS`."""
    found = _CODE.search(str(error))
    code = found[1] if found else ""
    if code in _REFUSED or isinstance(error, _REFUSALS):
        return StoreError("Redis refuses the user, the password or the command")
    if code == "OOM":
        return StoreFull("Redis has no memory left", retry_after=5)
    if code in _DAMAGED:
        return StoreError("the conversation's keys in Redis are damaged")
    if code or isinstance(
        error,
        (
            redis.ConnectionError,
            redis.TimeoutError,
            redis.ClusterError,
            redis.RedisClusterException,
        ),
    ):
        reason = f": {code}" if code else ""
        return StoreUnavailable(f"Redis does not answer{reason}", retry_after=1)
    return StoreError(f"Redis answered with an error ({type(error).__name__})")
