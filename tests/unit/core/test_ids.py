"""Ids that the server makes: with one alone, its conversation is found."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from passback.core.ids import (
    conversation_tag,
    is_server_made,
    new_call_id,
    new_conversation_id,
    new_message_id,
    new_nonce,
    new_run_id,
    tag_of,
)
from passback.core.messages import (
    CallId,
    ConversationId,
    ConversationKey,
    MessageId,
    OwnerId,
    RunId,
)

KEY = ConversationKey(OwnerId("owner"), ConversationId("conversation"))


def test_ids_say_what_they_name_and_are_safe_in_every_wire() -> None:
    assert re.fullmatch("conv_[0-9a-f]{24}", new_conversation_id())
    for made, kind in (new_run_id(KEY), "run"), (new_message_id(KEY), "msg"):
        assert re.fullmatch(f"{kind}_[A-Za-z0-9]{{34}}", made)
    # services refuse the ids of calls that have more than 40 characters
    assert re.fullmatch("call_[A-Za-z0-9]{34}", new_call_id(KEY))


def test_no_two_ids_are_equal() -> None:
    made = [make(KEY) for make in (new_run_id, new_message_id, new_call_id) for _ in range(1000)]
    assert len({one.partition("_")[2] for one in made}) == 3000
    assert len({new_nonce() for _ in range(100)}) == 100


@given(st.text(), st.text(min_size=1))
def test_an_id_has_the_tag_of_its_conversation(owner: str, name: str) -> None:
    key = ConversationKey(OwnerId(owner), ConversationId(name))
    for made in new_run_id(key), new_message_id(key), new_call_id(key):
        assert tag_of(made) == conversation_tag(key)


@pytest.mark.parametrize(
    "given",
    [
        "",
        "m1",
        "run_",
        "call_0b6f4c1d2e3a495867f8a9b0",  # of a model
        f"conv_{34 * 'a'}",
        f"msg_{33 * 'a'}",
        f"msg_{35 * 'a'}",
        f"msg_{33 * 'a'}-",
        f"msg_{33 * 'a'}_",
        f"msg_{22 * 'Z'}{12 * 'a'}",  # above every tag
        f"msg_{34 * 'a'}\n",
        f"msg_{33 * 'a'}\u00e4",
        f"MSG_{34 * 'a'}",
    ],
)
def test_other_ids_have_none(given: str) -> None:
    assert tag_of(MessageId(given)) is None
    assert not is_server_made(MessageId(given))


def test_only_those_of_messages_are_taken_for_messages_of_the_server() -> None:
    assert is_server_made(new_message_id(KEY))
    assert not is_server_made(MessageId(new_run_id(KEY)))
    assert tag_of(RunId(f"run_{34 * '0'}")) == tag_of(CallId(f"call_{34 * '0'}")) == 32 * "0"
