"""Settings of a conversation, given by its client: they hold until they are set anew."""

from typing import Final, Literal

from pydantic import TypeAdapter

from passback.core.errors import InvalidRequest
from passback.core.values import value

SETTINGS_BYTES: Final = 64 * 1024  # of the record


@value
class ConversationSettings:
    """Settings that a client has given a conversation. The wires read them, the engine does not.

    No secret belongs here: they are stored as they are.

    Attributes:
        cwd: the folder in which the conversation's files are; empty if none was named.
        directories: further folders with its files.
        model: the name of the model for its answers; empty for the agent's own.
        mode: the permission mode, as the client's protocol names it.
        decisions: a person's lasting decisions on client tools, by the tool's name, or by a key of
            the calls that they are on.
        effort: of reasoning, for its answers; empty for the agent's own.
    """

    cwd: str = ""
    directories: tuple[str, ...] = ()
    model: str = ""
    mode: str = ""
    decisions: tuple[tuple[str, Literal["allow", "deny"]], ...] = ()
    effort: str = ""


NO_SETTINGS: Final = ConversationSettings()

_adapter: TypeAdapter[ConversationSettings] = TypeAdapter(ConversationSettings)


def dump_settings(settings: ConversationSettings, /) -> bytes:
    """Serialise settings without their defaults."""
    return _adapter.serializer.to_json(settings, exclude_defaults=True)


def load_settings(record: bytes, /) -> ConversationSettings:
    return _adapter.validate_json(record)


def check_settings(settings: ConversationSettings, /) -> ConversationSettings:
    """Return the settings if they can be stored. Raises InvalidRequest otherwise."""
    try:
        size = len(dump_settings(settings))
    except ValueError:  # half of a surrogate pair, which JSON can spell and UTF-8 cannot
        raise InvalidRequest(
            "the settings of the conversation have a text that is not Unicode"
        ) from None
    if size > SETTINGS_BYTES:
        raise InvalidRequest(
            f"the settings of the conversation are too large: {size} bytes, "
            f"of at most {SETTINGS_BYTES}"
        )
    return settings
