"""Attachments that the agent's model cannot take are refused before a run begins."""

from passback.core.errors import UnsupportedAttachment
from passback.core.messages import MediaPart, SystemMessage, UserMessage
from passback.core.ports import ModelClient
from passback.core.posts import StartRun


def refuse_attachments(post: StartRun, model: ModelClient, /) -> None:
    """Raise `UnsupportedAttachment` for the first of a post's images, sounds and files that the model cannot be shown."""
    for message in (*post.history, *post.messages):
        if not isinstance(message, UserMessage | SystemMessage) or isinstance(message.content, str):
            continue
        for part in message.content:
            if isinstance(part, MediaPart) and (why := model.refuses(part)):
                raise UnsupportedAttachment(
                    f"this agent cannot take an attachment of type {part.type!r}: {why}",
                    details={"type": part.type},
                )
