"""Settings of a store, whatever its kind."""

import re

from passback.core.errors import ConfigurationError
from passback.core.values import milliseconds, value

DAY = 24 * 3600.0


@value
class StoreOptions:
    """Settings of a store; times in seconds.

    Args:
        ttl: how long a conversation is kept after its last write; None keeps it for ever.
        log_ttl: how long a run's log can be read after the run has ended.
        log_bytes: how large the records of one run's log may become before its oldest are removed.
        prefix: what the names of all keys begin with (Redis), or the schema of the tables
            (PostgreSQL).
        max_connections: connections to the server at most (Redis; PostgreSQL: 16 at most, whatever
            this says).
        allow_eviction: accept a server that may evict our keys when its memory is full (Redis).
        timeout: how long an operation may take, with all its repeats, until the store counts as
            unavailable.

    Raises:
        ConfigurationError: a value that cannot work.
    """

    ttl: float | None = None
    log_ttl: float = 3600.0
    log_bytes: int = 16 * 2**20
    prefix: str = "pb"
    max_connections: int = 64
    allow_eviction: bool = False
    timeout: float = 8.0

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w.:-]{1,64}", self.prefix, re.ASCII):
            raise ConfigurationError(
                "the store's key prefix is 1 to 64 of letters, digits and . : _ -"
            )
        if self.log_ttl <= 0 or (self.ttl is not None and self.ttl <= 0):
            raise ConfigurationError("a store's time to live is more than 0 seconds")
        if self.log_bytes < 1:
            raise ConfigurationError("a log has room for one byte at least")
        if self.timeout <= 0:
            raise ConfigurationError("a store's timeout has to be more than 0 seconds")
        if self.max_connections < 1:
            raise ConfigurationError("a store needs at least one connection")


@value
class KeepTimes:
    """Times to live for the keys or rows that a write touches, in milliseconds; None for ever."""

    conversation: int | None
    log: int

    @classmethod
    def when_idle(cls, options: StoreOptions, /) -> "KeepTimes":
        """Return the times while no run goes on. A log does not outlive its conversation."""
        log = options.log_ttl if options.ttl is None else min(options.log_ttl, options.ttl)
        return cls(None if options.ttl is None else milliseconds(options.ttl), milliseconds(log))

    @classmethod
    def when_running(cls, options: StoreOptions, /) -> "KeepTimes":
        """Return the times during a run: a day at least, so that nothing expires under it."""
        ttl = None if options.ttl is None else milliseconds(max(options.ttl, DAY))
        return cls(ttl, milliseconds(DAY))
