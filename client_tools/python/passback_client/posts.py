"""The content of a post with a user's message, and the options of any post."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, TypedDict, cast

from pydantic import BaseModel, JsonValue, PydanticUserError

from passback_client.channel import Post, encode
from passback_client.errors import BadSetup
from passback_client.events import Content, Include, JsonObject, OnBusy, OnDisconnect
from passback_client.follow import StreamSettings

OutputSchema: TypeAlias = JsonObject | type[BaseModel]
"""A JSON Schema of type object, or a pydantic model that has one."""


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message with a role or an id beside its content.

    Attributes:
        content: a text, or a list of parts.
        role: `system` only if the server's settings allow it.
        id: of the message in the history; the server recognizes a repeated one.
    """

    content: Content
    role: Literal["user", "system"] = "user"
    id: str | None = None


NewMessages: TypeAlias = Content | NewMessage | Sequence[NewMessage]


class SendOptions(TypedDict, total=False):
    """The keyword arguments of `Client.send`, which documents them, and of `ask`."""

    conversation_id: str | None
    after: str | None
    agent_id: str | None
    structured_data: JsonValue
    intent: str | None
    constraints: Sequence[str]
    instructions: str | None
    output_schema: OutputSchema | None
    model: str | None
    on_busy: OnBusy | None
    on_disconnect: OnDisconnect | None
    include: Sequence[Include]
    idempotency_key: str | None
    wait_while_busy: bool


@dataclass(frozen=True, slots=True)
class MessageContext:
    """The context of a message. It belongs to the last user message of its post, and only a post
    with one may have it.

    Raises:
        BadSetup: it cannot be posted.
    """

    structured_data: JsonValue = None
    intent: str | None = None
    constraints: Sequence[str] = ()
    instructions: str | None = None
    output_schema: OutputSchema | None = None
    model: str | None = None

    @property
    def fields(self) -> JsonObject:
        """The fields of the post that are not None."""
        if isinstance(self.constraints, str):
            raise BadSetup("constraints are a list of texts")
        return defined(
            structuredData=self.structured_data,
            intent=self.intent,
            constraints=[*self.constraints] or None,
            instructions=self.instructions,
            outputSchema=_schema(self.output_schema),
            model=self.model,
        )


@dataclass(frozen=True, slots=True)
class PostOptions:
    """The options of a post, whatever its content."""

    settings: StreamSettings
    on_disconnect: OnDisconnect | None = None
    key: str | None = None
    agent_id: str | None = None

    @property
    def options(self) -> JsonObject:
        """Keys of the body that the posts of results repeat."""
        return {"include": [*self.settings.include], **defined(onDisconnect=self.on_disconnect)}

    def post(self, body: JsonObject) -> Post:
        return named_post(body, self.key, agent_id=self.agent_id)


def named_post(body: JsonObject, key: str | None, *, agent_id: str | None = None) -> Post:
    """Return a post under its idempotency key; None: a new one. Raises BadSetup."""
    post = Post(encode(body), agent_id=agent_id)
    return post if key is None else replace(post, key=key)


def posted_messages(messages: NewMessages) -> list[JsonValue]:
    """Return the messages as they are posted."""
    if isinstance(messages, NewMessage):
        return [_message(messages)]
    if not isinstance(messages, str) and any(isinstance(each, NewMessage) for each in messages):
        return [_message(each) for each in cast("Sequence[NewMessage]", messages)]
    return [_message(NewMessage(cast("Content", messages)))]


def defined(**fields: JsonValue) -> JsonObject:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def _message(message: NewMessage) -> JsonObject:
    # programs without types may mix them
    if not isinstance(message, NewMessage):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadSetup("a list has parts or messages, not both")
    content: JsonValue = message.content if isinstance(message.content, str) else [*message.content]
    return {"role": message.role, "content": content, **defined(id=message.id)}


def _schema(schema: OutputSchema | None) -> JsonObject | None:
    if not isinstance(schema, type):
        return schema
    try:
        return schema.model_json_schema()
    except (AttributeError, PydanticUserError) as error:
        raise BadSetup("the output schema is a class that has no JSON Schema") from error
