"""New ids: a prefix that names the kind, and 96 random bits in hex, which is safe in every wire."""

import re
import secrets
from typing import Final

from passback.core.messages import CallId, ConversationId, MessageId, RunId

_MESSAGE_ID: Final = re.compile("msg_[0-9a-f]{24}")


def new_conversation_id() -> ConversationId:
    return ConversationId(_random_id("conv"))


def new_run_id() -> RunId:
    return RunId(_random_id("run"))


def new_message_id() -> MessageId:
    return MessageId(_random_id("msg"))


def is_server_made(message_id: MessageId, /) -> bool:
    """Return whether an id has the form that `new_message_id` gives."""
    return _MESSAGE_ID.fullmatch(message_id) is not None


def new_call_id() -> CallId:
    return CallId(_random_id("call"))


def new_nonce() -> str:
    return secrets.token_hex(8)  # 64 bits: unique among the writes of one conversation


def _random_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(12)}"
