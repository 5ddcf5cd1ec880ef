"""A change of the transcript, as a write: the branch that is read afterwards, and its records."""

from dataclasses import replace

from passback.core.changes import Change, dump_message, dump_state, dump_tools
from passback.core.conversation.head import (
    NAMED,
    SETTINGS,
    STATE,
    TITLE,
    TOOLS,
    Head,
    dump_head,
    dump_receipts,
    first_version,
)
from passback.core.conversation.store import Found, Guard, View, Write
from passback.core.conversation_settings import dump_settings


def changed_head(head: Head, stored: int, change: Change, /) -> Head:
    """Return the head with a change's messages, behind `stored` ones of all branches.

    It has what the client owes afterwards.
    """
    tree = head.tree.grown(len(change.left), stored)
    if change.leaf is not None and change.leaf != tree.leaf:
        tree = replace(tree, leaf=change.leaf)
        shared = head.tree.shared(tree)
        known = shared if head.unchanged is None else min(shared, head.unchanged)
        # nothing is owed where the branch goes on
        head = replace(head, unchanged=known, answer_by=None)
    start = head.history_start if change.state is None else change.state.history_start
    if change.state is None and start > len(tree):
        start = 0  # it would hide what comes next
    return replace(
        head,
        owed=change.owed,
        open_turns=None,
        history_start=start,
        tree=tree.grown(len(change.append), stored + len(change.left)),
    )


def write_change(found: Found, before: Head, head: Head, change: Change, /) -> Write:
    """Return the write of a change that replaces the head `before`."""
    fields = dict[str, bytes | None]()
    if change.title and not found.fields.get(TITLE):
        fields[TITLE] = change.title.encode()
        if change.named:
            fields[NAMED] = b"1"
    if change.tools is not None:
        fields[TOOLS] = dump_tools(change.tools)
    if change.settings is not None:
        fields[SETTINGS] = dump_settings(change.settings)
    if change.state is not None:
        fields[STATE] = dump_state(change.state)
    messages = (*change.left, *change.append)
    return Write(
        change.key,
        change.nonce,
        Guard(version=found.version),
        first_version=first_version(change.nonce),
        head=dump_head(head),
        fields=fields,
        messages=tuple(map(dump_message, messages)),
        view=changed_view(before, head, found.message_count, len(messages)),
        receipts=dump_receipts(change.receipts),
    )


def changed_view(before: Head, after: Head, stored: int, count: int, /) -> View | None:
    """Return the messages to read after a write of `count`; None where it only adds them."""
    adds_only = after.tree.forks == before.tree.forks and before.tree.leaf == stored - 1
    grows = after.tree.leaf == stored + count - 1
    if adds_only and grows and after.history_start == before.history_start:
        return None
    return View(after.tree.spans(after.history_start, stored + count))
