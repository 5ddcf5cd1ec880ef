"""Ledgers on the stores of a URL, as the product composes them."""

from passback.engine.ledger import Ledger
from passback.stores.open import open_store
from passback.stores.options import StoreOptions


def open_ledger(url: str, /, *, options: StoreOptions | None = None) -> Ledger:
    """Return the ledger of a store; it connects when it is entered."""
    return Ledger(open_store(url, options=options))
