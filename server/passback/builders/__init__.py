"""Builders of the Agent API's events: response, message, content. No I/O.

Steps come in the protocol's order. Each one returns the event to send, a JSON object with the next
`sequence_number`. An event never changes afterwards. A step that is not legal raises `Misuse`,
whose text says what to do.

    builder = ResponseBuilder(session_id="s")
    yield builder.created()
    yield builder.in_progress()
    message = builder.create_message_builder()
    yield message.get_message_data()
    content = message.create_content_builder("text")
    yield content.add_text_delta("Hel")
    yield content.add_text_delta("lo")
    yield content.complete()
    yield message.complete()
    yield builder.completed()
"""

from passback.builders.content import ContentBuilder
from passback.builders.events import Event, Misuse, encode
from passback.builders.message import MessageBuilder, MessageEnd, MessageType, Role
from passback.builders.response import ResponseBuilder

__all__ = [
    "ContentBuilder",
    "Event",
    "MessageBuilder",
    "MessageEnd",
    "MessageType",
    "Misuse",
    "ResponseBuilder",
    "Role",
    "encode",
]
