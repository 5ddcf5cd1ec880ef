"""Erasing all conversations of an owner, in steps."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from passback.core.changes import Erased
from passback.core.conversation.store import Query, Store
from passback.core.errors import StoreError
from passback.core.messages import ConversationKey, OwnerId

DeleteConversation = Callable[[ConversationKey], Awaitable[bool]]
"""Deletes a conversation; False if there is none."""


async def erase_owner(
    store: Store, owner: OwnerId, /, *, limit: int, delete: DeleteConversation | None = None
) -> Erased:
    """Delete conversations of an owner, the newest first, and at most `limit` of them.

    One that cannot be deleted does not stop the others.

    Args:
        store: has them.
        owner: whose they are.
        limit: of this step.
        delete: deletes one; None: the store does.

    Raises:
        StoreError: none could be deleted, and there are some.
    """
    delete = delete or store.delete
    deleted, failure = 0, None
    query = Query(owner, "all", limit=min(limit, 64))
    while True:
        page = await store.query(query)
        for each in page.listed:
            if deleted == limit:
                return Erased(deleted, more=True)
            try:
                deleted += await delete(each.key)
            except StoreError as error:
                failure = error
        if page.unnamed:
            failure = StoreError(
                f"the name of a conversation cannot be read: the one with the tag {page.unnamed[0]}"
            )
        if page.next is None:
            break
        query = replace(query, after=page.next)
    if failure is not None and not deleted:
        raise failure
    return Erased(deleted, more=failure is not None)
