"""The stored messages of a conversation, as the messages of a chat.

A client has one message of the agent for all that is stored between two messages of the user. Its
id is that of the run which began it. A message of the user keeps the id that the client gave it,
unless it was edited: then the client has one id for several stored messages.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from passback.core.errors import UnknownMessage
from passback.core.messages import (
    Content,
    ConversationKey,
    Message,
    MessageId,
    RunRef,
    UserMessage,
    single_text,
)
from passback.core.runs import BranchPoint, Runs
from passback.core.transcript import unwrap_message
from passback.core.values import value
from passback.native.earlier import PAGE_MESSAGES, messages_before, read_range

_MOST_MESSAGES: Final = 10_000  # messages that are searched, from the end

_NOT_HERE: Final = (
    "this chat has gone on without the message that is edited or regenerated: load it again"
)


@value
class Branch:
    """The last messages of the branch that is read.

    Attributes:
        messages: the messages.
        whole: they are all messages of the branch.
    """

    messages: Sequence[Message]
    whole: bool

    def has(self, message_id: MessageId) -> bool:
        """Return whether a message is on the branch."""
        return any(each.id == message_id for each in self.messages)

    def place_of_edit(
        self, edited: MessageId, points: Sequence[BranchPoint], before: str | None
    ) -> MessageId | None:
        """Return the id of the message that an edited one follows; None: the last one.

        The empty id: it is the first one.

        Args:
            edited: the client's id of the message of the user.
            points: where other branches have other messages.
            before: the client's id of the message of the agent before it. Empty: there is none.
                None: the client does not tell.

        Raises:
            UnknownMessage: neither is here.
        """
        for at, message in enumerate(self.messages):
            if message.id == edited:
                return self._place_before(at)
        for point in points:
            if edited in point.versions:
                return point.after or MessageId("")
        behind = self._behind(before)
        start = len(self.messages) - len(behind)
        for at, message in enumerate(behind, start):
            if isinstance(message, UserMessage):
                return self._place_before(at)
        if not behind and not (before == "" and self.whole):
            raise UnknownMessage(_NOT_HERE)
        return None

    def asked(self, answer: str | None) -> MessageId:
        """Return the id of the message of the user that an answer belongs to.

        Args:
            answer: the client's id of the answer, or of the message of the user; None: the last
                answer.

        Raises:
            UnknownMessage: it is not on this branch.
        """
        found: MessageId | None = None
        for message in self.messages:
            if isinstance(message, UserMessage):
                found = message.id
            if answer is not None and answer in {message.id, message.run_id}:
                break
        else:
            found = found if answer is None else None
        if found is None:
            raise UnknownMessage(_NOT_HERE)
        return found

    def repeated(
        self, message_id: MessageId, content: Content, before: str | None
    ) -> MessageId | None:
        """Return the stored id of a message of the user that the client sends again.

        Args:
            message_id: the client's id.
            content: the content, which has to be the same.
            before: as in `place_of_edit`.
        """

        def same(messages: Iterable[Message]) -> Iterator[MessageId]:
            for each in messages:
                if isinstance(each, UserMessage) and _text(each.content) == _text(content):
                    yield each.id

        if message_id in same(self.messages):
            return message_id
        return next(same(self._behind(before)), None)

    def _behind(self, before: str | None) -> Sequence[Message]:
        """Return the messages from an answer on; all of them if there is none before."""
        if before == "":
            return self.messages if self.whole else ()
        for at, message in enumerate(self.messages):
            if before in {message.id, message.run_id} and not isinstance(message, UserMessage):
                return self.messages[at:]
        return ()

    def _place_before(self, at: int) -> MessageId:
        if at:
            return self.messages[at - 1].id
        if not self.whole:
            raise UnknownMessage(_NOT_HERE)
        return MessageId("")


async def read_branch(runs: Runs, key: ConversationKey, /) -> Branch:
    """Return the last messages of a conversation.

    Raises:
        UnknownConversation: there is none.
    """
    end = (await runs.status(key)).message_count
    start = max(0, end - _MOST_MESSAGES)
    return Branch(await read_range(runs, key, start, end), start == 0)


async def read_beginning(runs: Runs, key: ConversationKey, start: int, /) -> Sequence[Message]:
    """Return the messages of the agent with which a run goes on.

    There are none if the run has a message of the user.

    Args:
        runs: reads the record.
        key: the conversation.
        start: where the messages of its newest run begin, behind the results that were posted.
    """
    own = await runs.messages(key, start=start, limit=PAGE_MESSAGES)
    if any(isinstance(each, UserMessage) for each in own.messages):
        return ()
    return await _read_back(runs, key, start)


async def read_beginning_of(runs: Runs, run: RunRef, /) -> Sequence[Message]:
    """Return the messages of the agent with which an earlier run has gone on.

    There are none if it has a message of the user, or said nothing on the branch that is read.

    Raises:
        UnknownRun, CursorExpired: the run's beginning cannot be read any more.
    """
    start = await messages_before(runs, run)
    if start is None:
        return ()
    own = await runs.messages(run.key, start=start, limit=1)
    if all(unwrap_message(each)[1].run_id != run.run_id for each in own.messages):
        return ()
    return await _read_back(runs, run.key, start)


async def _read_back(runs: Runs, key: ConversationKey, start: int) -> Sequence[Message]:
    """Return the messages before a place, back to one of the user."""
    found: list[Message] = []
    while start > 0:
        before = max(0, start - PAGE_MESSAGES)
        page = await read_range(runs, key, before, start)
        users = (n for n, each in enumerate(page, 1) if isinstance(each, UserMessage))
        last = max(users, default=0)
        found[:0] = page[last:]
        if last:
            break
        start = before
    return found


def message_id_of(messages: Iterable[Message], /) -> str | None:
    """Return the client's id of the message that begins with these; None if there are none."""
    return next((each.run_id or each.id for each in messages), None)


def _text(content: Content) -> str | Content:
    text = single_text(content)
    return content if text is None else text
