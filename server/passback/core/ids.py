"""New ids: a prefix that tells people what it names, and 96 random bits. Their alphabet is safe in every wire."""

import re
import secrets
from typing import Final

from passback.core.messages import CallId, ConversationId, MessageId, RunId

_MESSAGE_ID: Final = re.compile("msg_[0-9a-f]{24}")


def new_conversation_id() -> ConversationId:
    return ConversationId(_new("conv"))


def new_run_id() -> RunId:
    return RunId(_new("run"))


def new_message_id() -> MessageId:
    return MessageId(_new("msg"))


def may_be_ours(message_id: MessageId, /) -> bool:
    """Whether an id is as `new_message_id` makes them."""
    return _MESSAGE_ID.fullmatch(message_id) is not None


def new_call_id() -> CallId:
    return CallId(_new("call"))


def new_nonce() -> str:
    return secrets.token_hex(8)


def _new(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(12)}"
