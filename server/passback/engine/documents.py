"""Conversations as documents: written from a store in pieces, and stored from one."""

from collections.abc import AsyncIterator, Sequence
from functools import partial

import anyio.to_thread

from passback.core.conversation.document import (
    DOCUMENT_END,
    ConversationDocument,
    begin_document,
    document_of,
)
from passback.core.conversation.importing import Import, check_document
from passback.core.conversation.store import Found, Span, Store, Wanted
from passback.core.errors import HistoryTooLarge, UnknownConversation
from passback.core.ids import new_message_id, new_nonce
from passback.core.messages import ConversationKey

_MESSAGES_AT_ONCE = 64
_WHOLE = Wanted(whole=True)


async def export_conversation(store: Store, key: ConversationKey, /) -> AsyncIterator[bytes]:
    """Return the pieces of a conversation's document, a few messages each.

    It is as it was when the first piece was read: what a run commits later is not in it.

    Raises:
        UnknownConversation: there is none; or it is deleted while its pieces are read.
        StoreError: a record cannot be read.
    """
    found = await store.read(key, _WHOLE)
    if not found.version:
        raise UnknownConversation("there is no such conversation")
    beginning = begin_document(document_of(found, key.id))
    return _pieces(store, key, found, beginning)


async def _pieces(
    store: Store, key: ConversationKey, found: Found, beginning: bytes
) -> AsyncIterator[bytes]:
    yield beginning
    start, end = 0, found.message_count
    while start < end:
        records: Sequence[bytes] = await store.page(
            key, (Span(start, end),), limit=_MESSAGES_AT_ONCE
        )
        if not records:
            raise UnknownConversation("the conversation was deleted")
        separator = b",\n" if start else b""
        yield separator + b",\n".join(records)
        start += len(records)
    yield DOCUMENT_END


async def read_import(
    key: ConversationKey, document: ConversationDocument, /, *, limit: int
) -> Import:
    """Check a document, and return the command that makes a conversation of it.

    Raises:
        InvalidRequest: the server cannot have written it.
        HistoryTooLarge: its history is larger than `limit` bytes.
    """
    # in a thread: it looks at every message
    checked = await anyio.to_thread.run_sync(check_document, document, partial(new_message_id, key))
    command = Import(key, checked, new_nonce())
    if command.history_bytes > limit:
        raise HistoryTooLarge(
            f"the conversation is larger than {limit} bytes (history_bytes in PASSBACK_LIMITS)",
            details={"limit": limit},
        )
    return command
