"""The meaning of a post for a conversation whose messages were not read, as far as that can be said. Pure."""

from collections.abc import Collection

from passback.core.admission import BUSY, NOT_WAITING, Joins, Parks, Standing, refuse_empty
from passback.core.errors import ConversationBusy, Reused, UnknownToolCall
from passback.core.messages import Answer, Owed, PostedMessage
from passback.core.posts import Receipts, StartRun, for_call, for_message
from passback.core.repeats import OTHER_MESSAGE, conflict, print_of, run_by_key, run_of_last


def accept_unread(
    standing: Standing, owing: Collection[Owed], post: StartRun, /
) -> Joins | Parks | None:
    """Decide what a post means by receipts and by what is owed alone. None: it takes the messages.

    Args:
        standing: without messages.
        owing: what the client has to answer, while nothing runs.
        post: may be any.

    Raises:
        NothingToDo, Reused, UnknownToolCall, ResultConflict, ConversationBusy: as `accept`.
    """
    refuse_empty(post)
    if (run_id := run_by_key(post, standing.receipts)) is not None:
        return Joins(run_id)
    fresh = [each for each in post.messages if not _is_known(each, post, standing.receipts)]
    if fresh:
        _refuse_fresh(fresh, standing, owing, post)
        return None
    run_id = run_of_last(post, standing.receipts)
    if run_id is not None:
        return Joins(run_id)
    # tools may clash with the server's, and are stored even with a repeat
    takes_messages = standing.running or standing.overdue or post.tools is not None
    return None if takes_messages else Parks((), {}, tuple(owing))


def _refuse_fresh(
    fresh: Collection[PostedMessage],
    standing: Standing,
    owing: Collection[Owed],
    post: StartRun,
) -> None:
    """Raise what needs no message to be known: answers that nobody owes, and words while a run goes on."""
    answered = {each.call_id for each in fresh if isinstance(each, Answer)}
    if not standing.running:
        if answered - {each.id for each in owing}:
            raise UnknownToolCall(NOT_WAITING)
        return
    may_be_known = post.resends or any(each.id in post.named for each in fresh)
    if post.on_busy == "reject" and not answered and not may_be_known:
        raise ConversationBusy(BUSY, retry_after=1)


def _is_known(message: PostedMessage, post: StartRun, receipts: Receipts) -> bool:
    """Return whether a posted message is an equal repeat of one that has a receipt."""
    if isinstance(message, Answer):
        known = receipts.get(for_call(message.call_id))
        if known is not None and known.fingerprint != print_of(message):
            raise conflict(known.fingerprint)
        return known is not None
    known = receipts.get(for_message(message.id)) if message.id in post.named else None
    if known is not None and known.fingerprint != print_of(message):
        raise Reused(OTHER_MESSAGE)
    return known is not None
