"""New ids: a prefix that tells people what it names, and 96 random bits. Their alphabet is safe in every wire."""

import secrets

from passback.core.messages import CallId, ConversationId, MessageId, RunId


def new_conversation_id() -> ConversationId:
    return ConversationId(_new("conv"))


def new_run_id() -> RunId:
    return RunId(_new("run"))


def new_message_id() -> MessageId:
    return MessageId(_new("msg"))


def new_call_id() -> CallId:
    return CallId(_new("call"))


def new_nonce() -> str:
    return secrets.token_hex(8)


def _new(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(12)}"
