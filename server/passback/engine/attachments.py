"""Attachments that the agent's model cannot take are refused before they are stored."""

from collections.abc import Sequence

from passback.core.errors import UnsupportedAttachment
from passback.core.messages import MediaPart, Message, SystemMessage, UserMessage
from passback.core.ports import ModelClient


def refuse_attachments(append: Sequence[Message], model: ModelClient, /) -> None:
    """Raise `UnsupportedAttachment` for the first image, sound or file in new messages that the model cannot be shown."""
    for message in append:
        if not isinstance(message, UserMessage | SystemMessage) or isinstance(message.content, str):
            continue
        for part in message.content:
            if isinstance(part, MediaPart) and (why := model.refuses(part)):
                raise UnsupportedAttachment(
                    f"this agent cannot take an attachment of type {part.type!r}: {why}",
                    details={"type": part.type},
                )
