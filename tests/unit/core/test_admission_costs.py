"""What it costs to judge a post of many messages: as much as there are, however long the conversation is."""

from tests.unit.core.admission import KEY, minting, user
from typing_extensions import override

from passback.core.admission import Begins, ConversationSnapshot, decide_post
from passback.core.messages import AssistantMessage, Message, MessageId, UserMessage
from passback.core.posts import StartRun

POSTED, STORED = 300, 1_000
"""Messages. A body has room for 10,000, and a conversation for more: too many to compare each with each."""


class CountedId(str):
    """An id that counts how often one of its kind is compared."""

    compared = 0
    __hash__ = str.__hash__

    @override
    def __eq__(self, other: object) -> bool:
        CountedId.compared += 1
        return str.__eq__(self, other)


def test_ids_that_a_client_chose_are_not_each_compared_with_each_message() -> None:
    ids = [MessageId(CountedId(f"mine-{number}")) for number in range(POSTED)]
    posted = tuple(UserMessage(each, "hi") for each in ids)
    stored: list[Message] = [
        AssistantMessage(MessageId(f"msg_{number:024x}"), "hello") for number in range(STORED)
    ]
    post = StartRun(KEY, posted, named=frozenset(ids))
    CountedId.compared = 0
    verdict = decide_post(ConversationSnapshot([user(), *stored]), post, minting())
    assert isinstance(verdict, Begins)
    assert verdict.append == posted
    # once or twice for each posted message, where equal ids meet
    assert CountedId.compared < 20 * POSTED
