"""How a conversation stands, and what was said in it."""

from dataclasses import dataclass

from passback_client.events import JsonObject, OwedCall
from passback_client.fields import as_object, count, objects, optional_text, text
from passback_client.parsing import owed_calls


@dataclass(frozen=True, slots=True)
class Conversation:
    """A look at one moment.

    Attributes:
        id: its id.
        run_id: the newest run that has begun.
        running: the run that goes on.
        queued: how many posts wait.
        owed: what the client has to answer.
        message_count: how many messages there are.
    """

    id: str
    run_id: str | None
    running: str | None
    queued: int
    owed: tuple[OwedCall, ...]
    message_count: int


@dataclass(frozen=True, slots=True)
class MessagePage:
    """Some messages, oldest first, in the forms of the wire; `next` is the `after` of the next page, if there is one."""

    messages: list[JsonObject]
    next: int | None
    total: int


def read_conversation(fields: JsonObject) -> Conversation:
    """Raises BadAnswer."""
    running = fields.get("running")
    queued = fields.get("queued")
    return Conversation(
        text(fields, "id"),
        optional_text(fields, "runId"),
        None if running is None else text(as_object(running), "runId"),
        len(queued) if isinstance(queued, list) else 0,
        owed_calls(fields, "owed"),
        count(fields, "messageCount"),
    )


def read_page(fields: JsonObject) -> MessagePage:
    """Raises BadAnswer."""
    following = None if fields.get("next") is None else count(fields, "next")
    return MessagePage(objects(fields, "messages"), following, count(fields, "total"))
