"""Limits and names that all stores share, whatever their database."""

import hashlib
import logging
from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache
from typing import Final

from passback.core.conversation.head import UNREADABLE
from passback.core.errors import StoreError
from passback.core.messages import OwnerId

logger = logging.getLogger(__name__)

SPENT_TTL: Final = 2 * 24 * 3600 * 1000  # milliseconds for which the counts of owners are kept
# the largest count of an owner, which stays there: Lua counts in doubles, exact up to this
SPENT_MOST: Final = 2**53 - 1

PAGE_SIZE: Final = 8 * 2**20  # bytes of records in one page, unless its first one alone is larger


MISSING: Final = "messages of the conversation are missing"  # the text of an error


@contextmanager
def unpacking_records() -> Generator[None]:
    """As `reading_records`, for what a store reads itself; with a line in the log."""
    try:
        yield
    except UNREADABLE as error:
        kind = type(error).__name__
        logger.warning("a record in the store cannot be read: %s", kind)
        raise StoreError(f"a record of the conversation cannot be read: {kind}") from None


@lru_cache(maxsize=10_000)
def owner_tag(owner: OwnerId, /) -> str:
    """Return the name of an owner in a store: 32 hex digits."""
    return hashlib.sha256(pack_owner(owner)).hexdigest()[:32]


def pack_owner(owner: OwnerId, /) -> bytes:
    return owner.encode("utf-8", "surrogatepass")
