"""A conversation as one JSON document: its form, how it is written, and how it is read.

A document has all branches of a conversation, with attachments inline, and what the next post
depends on: state, settings, the client's tools, receipts, what is owed. It has no logs and no
queue. The same conversation gives the same document whatever store it is in, times aside.
`importing` checks one that comes from outside.
"""

import json
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from passback.core.changes import load_tools
from passback.core.conversation.head import (
    TOOLS,
    head_of,
    load_receipt,
    newest_epoch,
    reading_records,
    status_of,
)
from passback.core.conversation.store import Found
from passback.core.conversation.tree import NO_MESSAGE, Fork, Tree
from passback.core.conversation_settings import NO_SETTINGS, ConversationSettings
from passback.core.errors import InvalidRequest
from passback.core.events import START, Position
from passback.core.messages import ConversationId, Message, Owed, RunId, ToolSpec
from passback.core.posts import Receipt, ReceiptName
from passback.core.state import State
from passback.core.text import describe_validation_error
from passback.core.values import value

FORMAT: Final = "passback-conversation"
VERSION: Final = 1
_PLACE_CHARACTERS = 100  # of a place, in an error
_PROBLEM_CHARACTERS = 200

_TaggedMessage: TypeAlias = Annotated[Message, Field(discriminator="role")]
# validation stops at the first wrong item: to report a million of them takes seconds
_Messages: TypeAlias = Annotated[tuple[_TaggedMessage, ...], Field(fail_fast=True)]
_Forks: TypeAlias = Annotated[tuple[Fork, ...], Field(fail_fast=True)]


@value
class NewestRun:
    """The newest run that has begun. Attributes are as in `Status`."""

    run_id: RunId
    committed: Position = START
    run_start: int = 0
    stopped_early: bool = False


@value
class ConversationDocument:
    """A conversation.

    Attributes:
        format, version: of the document.
        id: of the conversation; its owner is not named.
        title, named, settings, owed, answer_by: as in `Status`.
        created, updated: as in `Status`, for readers: an import has its own times.
        state: its `history_start` is a position on the branch that is read.
        tools: the client's tools; None: it has never declared any.
        running: a run went on when the document was written: an import closes it.
        run: the newest run.
        epochs: the newest epoch of all runs.
        leaf, forks: of the tree of its messages.
        runs: records of runs.
        receipts: without those of posts that waited in the queue.
        messages: all that are stored, by their numbers.
    """

    format: Literal["passback-conversation"]
    version: Literal[1]
    id: ConversationId
    title: str = ""
    named: bool = False
    created: int = 0
    updated: int = 0
    settings: ConversationSettings = NO_SETTINGS
    state: State = field(default_factory=State)
    tools: tuple[ToolSpec, ...] | None = None
    running: bool = False
    run: NewestRun | None = None
    epochs: int = 0
    owed: tuple[Owed, ...] = ()
    answer_by: int | None = None
    leaf: int = NO_MESSAGE
    forks: _Forks = ()
    runs: Mapping[RunId, JsonValue] = field(default_factory=dict[RunId, JsonValue])
    receipts: Mapping[ReceiptName, Receipt] = field(default_factory=dict[ReceiptName, Receipt])
    messages: _Messages = ()

    @property
    def tree(self) -> Tree:
        return Tree(self.leaf, self.forks)


@cache
def _adapter() -> TypeAdapter[ConversationDocument]:
    """Return the adapter, built when it is first used: that takes long, and a start need not."""
    return TypeAdapter(ConversationDocument)


def document_of(found: Found, conversation_id: ConversationId, /) -> ConversationDocument:
    """Return the document of a conversation that was read whole, still without messages.

    Raises:
        StoreError: a record cannot be read.
    """
    head, status = head_of(found), status_of(found)
    run: NewestRun | None = None
    if head.run_id is not None:
        run = NewestRun(head.run_id, head.committed, head.run_start, head.stopped_early)
    with reading_records():
        receipts = {name: load_receipt(text) for name, text in sorted(found.receipts.items())}
        return ConversationDocument(
            FORMAT,
            VERSION,
            conversation_id,
            title=status.title,
            named=status.named,
            created=status.created,
            updated=status.updated,
            settings=status.settings,
            state=status.state,
            tools=load_tools(found.fields[TOOLS]) if TOOLS in found.fields else None,
            running=status.running,
            run=run,
            epochs=newest_epoch(found),
            owed=head.owed,
            answer_by=head.answer_by,
            leaf=head.tree.leaf,
            forks=head.tree.forks,
            runs={each: json.loads(record) for each, record in sorted(found.runs.items())},
            # a repeat of what waits would join a run that never begins
            receipts={
                name: each for name, each in receipts.items() if each.run_id not in status.queued
            },
        )


DOCUMENT_END: Final = b"\n]}\n"


def begin_document(document: ConversationDocument, /) -> bytes:
    """Return the text of a document up to its first message.

    The records of the messages follow, each behind a comma but the first one, and `DOCUMENT_END`.
    """
    text = _adapter().serializer.to_json(document, exclude_defaults=True)
    return text.removesuffix(b"}") + b',"messages":[\n'


def read_document(posted: JsonValue, /) -> ConversationDocument:
    """Return a document of the right form; `importing.check_document` checks what is in it.

    Raises:
        InvalidRequest: it has another form. The error names the place, never the value.
    """
    if not isinstance(posted, dict) or posted.get("format") != FORMAT:
        raise InvalidRequest(
            f'this is no conversation that was exported: its format is not "{FORMAT}"'
        )
    version = posted.get("version")
    if version != VERSION or isinstance(version, bool):
        raise InvalidRequest(f"version: this server reads version {VERSION} of the document")
    try:
        return _adapter().validate_python(posted)
    except ValidationError as error:
        detail = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, detail["loc"]))[:_PLACE_CHARACTERS]
        problem = describe_validation_error(detail)[:_PROBLEM_CHARACTERS]
        raise InvalidRequest(f"{place}: {problem}") from None
