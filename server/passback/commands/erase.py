"""`passback erase`: all conversations of one owner, for operators."""

from contextlib import AsyncExitStack

from passback.backend import named_in_errors
from passback.core.errors import ConfigurationError
from passback.core.messages import OwnerId
from passback.engine.erasing import erase_owner
from passback.settings import Settings
from passback.stores.open import open_filled_store

_AT_ONCE = 1000  # conversations between two lines of progress


async def erase(owner: str, settings: Settings) -> int:
    """Delete all conversations of an owner, print how many, and return the exit code.

    Raises:
        ConfigurationError: there is no owner or no store of this name, or it cannot be used.
        StoreError: the store cannot be used.
    """
    if not owner:
        raise ConfigurationError("--owner: name one; without API keys it is anonymous")
    with named_in_errors("PASSBACK_STORE"):
        store = open_filled_store(settings.store, options=settings.store_options)
    total = 0
    async with AsyncExitStack() as stack:
        with named_in_errors("PASSBACK_STORE"):
            await stack.enter_async_context(store)
            await store.check()  # its warnings are about what is written to it
        while (erased := await erase_owner(store, OwnerId(owner), limit=_AT_ONCE)).more:
            total += erased.deleted
            print(f"deleted {total} so far", flush=True)
    total += erased.deleted
    noun = "conversation" if total == 1 else "conversations"
    print(f"deleted {total} {noun} of {owner!a} in {store.location}")
    return 0
