"""The ids that the server makes.

Those of runs, messages and calls carry the tag of the conversation for which they are made: with
such an id alone, the conversation is found. An id that a client or a model has chosen carries none,
and is unique in its conversation only.
"""

import hashlib
import re
import secrets
import string
from functools import lru_cache
from typing import Final, NewType, TypeAlias

from passback.core.messages import (
    CallId,
    ConversationId,
    ConversationKey,
    MessageId,
    RunId,
)

MadeId: TypeAlias = RunId | MessageId | CallId
"""An id of a kind that the server makes, though a client or a model may have chosen this one."""

ConversationTag = NewType("ConversationTag", str)
"""The name of a conversation in a store: 32 hex digits, a hash of its key."""

# letters and digits only: an id is one word for a double click and for `\w`
_DIGITS: Final = string.digits + string.ascii_letters
_VALUES: Final = {digit: value for value, digit in enumerate(_DIGITS)}
_DIGIT_OF_BYTE: Final = bytes(ord(_DIGITS[byte % len(_DIGITS)]) for byte in range(256))
_TAG_BITS: Final = 128
_TAG_DIGITS: Final = 22  # the fewest that have room for them
_RANDOM_DIGITS: Final = 12  # 71 bits
# with the longest prefix 39 characters: some providers refuse calls with ids of more than 40
_TAGGED: Final = re.compile(
    f"(run|msg|call)_([0-9A-Za-z]{{{_TAG_DIGITS}}})[0-9A-Za-z]{{{_RANDOM_DIGITS}}}"
)


@lru_cache(maxsize=10_000)
def conversation_tag(key: ConversationKey, /) -> ConversationTag:
    """Return the name of a conversation in a store.

    It is 32 hex digits, so that no id can inject, collide or be too long.
    """
    return ConversationTag(hashlib.sha256(pack_key(key)).hexdigest()[: _TAG_BITS // 4])


def pack_key(key: ConversationKey, /) -> bytes:
    """Pack owner and id: recovery finds conversations by records, and needs their keys."""
    return f"{key.owner}\0{key.id}".encode("utf-8", "surrogatepass")


def new_conversation_id() -> ConversationId:
    return ConversationId(f"conv_{secrets.token_hex(12)}")


def new_run_id(key: ConversationKey, /) -> RunId:
    return RunId(f"run_{_tagged(key)}")


def new_message_id(key: ConversationKey, /) -> MessageId:
    return MessageId(f"msg_{_tagged(key)}")


def new_call_id(key: ConversationKey, /) -> CallId:
    return CallId(f"call_{_tagged(key)}")


def _tagged(key: ConversationKey) -> str:
    """Return the tag of a conversation, and 12 random digits, in base 62."""
    return _tag_digits(key) + secrets.token_bytes(_RANDOM_DIGITS).translate(_DIGIT_OF_BYTE).decode()


@lru_cache(maxsize=10_000)
def _tag_digits(key: ConversationKey) -> str:
    number, digits = int(conversation_tag(key), 16), ""
    for _ in range(_TAG_DIGITS):
        number, value = divmod(number, len(_DIGITS))
        digits = _DIGITS[value] + digits
    return digits


def is_server_made(message_id: MessageId, /) -> bool:
    """Return whether an id has the form that `new_message_id` gives."""
    return message_id.startswith("msg_") and tag_of(message_id) is not None


def tag_of(made: MadeId, /) -> ConversationTag | None:
    """Return the tag of the conversation for which an id was made.

    None: the server has not made it.
    """
    found = _TAGGED.fullmatch(made)
    if found is None:
        return None
    number = 0
    for digit in found[2]:
        number = number * len(_DIGITS) + _VALUES[digit]
    return ConversationTag(f"{number:0{_TAG_BITS // 4}x}") if number >> _TAG_BITS == 0 else None


def new_nonce() -> str:
    return secrets.token_hex(8)  # 64 bits: unique among the writes of one conversation
