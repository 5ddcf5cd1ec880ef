"""What a post says beside its words (`MessageContext`): how it is posted, and how it is shown."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, NotRequired, TypeAlias

from pydantic import Field, JsonValue
from pydantic_core import to_json
from typing_extensions import TypedDict

from passback.core.errors import DataTooLarge, InvalidRequest
from passback.core.messages import ConversationKey, MessageContext, PostedMessage, UserMessage
from passback.core.tables import BadTable, Table, check_table, tables_in
from passback.http.body import work_on
from passback.http.wires import RequestLimits
from passback.native.declarations import parse_output_schema
from passback.native.parts import Posted

_NOTHING = MessageContext()
_OF_ANY_POST = frozenset({"model"})
"""What many clients say in each post; where there is no user message, the one before still holds."""

_BLANK = " "  # an empty name is one that no model has: the agent refuses it where there is a choice

_PLACE = 200

_Words: TypeAlias = Annotated[str, Field(max_length=4_000)]


class PostedBrief(Posted):
    """It belongs to the post's last user message."""

    structured_data: JsonValue = Field(
        None,
        description="Data to work on, any JSON; null: none any more. It is shown to the model, and to data tools. "
        '`{"mediaType": "text/csv" or "text/tab-separated-values", "text"}`, also as the value of a key, is a table.',
    )
    intent: _Words | None = Field(None, description="What the user wants, in the client's words.")
    constraints: Annotated[list[_Words], Field(fail_fast=True, max_length=100)] | None = Field(
        None, description="What the agent has to keep to."
    )
    instructions: Annotated[str, Field(max_length=32_768)] | None = Field(
        None, description="The client's own instructions, for the answer to this message."
    )
    output_schema: dict[str, JsonValue] | str | None = Field(
        None,
        description="A JSON Schema of type object, or its text: the answer is JSON that fits it, or the run fails. Its "
        "value comes in the event `output` (include: output) and in the document's `output`.",
    )
    model: str | None = Field(
        None,
        description="The model that answers this message, where the server lets clients choose: by its name, such as "
        "`openai:gpt-5`, or by the part behind the colon, where that is one model's only. Missing or null: the server's "
        "own. Where there is nothing to choose, any text is passed over.",
    )


async def read_brief(
    posted: PostedBrief, limits: RequestLimits, key: ConversationKey, /
) -> MessageContext:
    """What was posted in a conversation; an empty brief, if that is nothing.

    Raises:
        DataTooLarge: more than `limits.data_bytes`, as compact JSON.
        InvalidRequest: it has a table that cannot be read.
        InvalidOutputSchema: says what is wrong with it.
        SchemasBusy: it could not be judged in time.
    """
    if posted.model_fields_set.isdisjoint(PostedBrief.model_fields):
        return _NOTHING
    data, schema = posted.structured_data, posted.output_schema
    name = _name(type(posted), "structured_data")
    refuse_large(name, data, limits)
    await _refuse_bad_tables(name, data)
    return MessageContext(
        data,
        (posted.intent or "").strip(),
        tuple(filter(None, (each.strip() for each in posted.constraints or ()))),
        (posted.instructions or "").strip(),
        None
        if schema is None
        else await parse_output_schema(schema, limits, _name(type(posted), "output_schema"), key),
        forgets=data is None and "structured_data" in posted.model_fields_set,
        model="" if posted.model is None else posted.model or _BLANK,
    )


def refuse_large(name: str, data: JsonValue, limits: RequestLimits, /) -> None:
    """Raises DataTooLarge."""
    if data is not None and len(to_json(data)) > limits.data_bytes:
        raise DataTooLarge(
            f"{name} is larger than {limits.data_bytes} bytes (PASSBACK_MAX_DATA_BYTES)",
            details={"limit": limits.data_bytes},
        )


async def _refuse_bad_tables(name: str, data: JsonValue) -> None:
    tables = [(f"{name}.{key}" if key else name, table) for key, table in tables_in(data)]
    await work_on((table.text for _, table in tables), _check_tables, tables)


def _check_tables(tables: Sequence[tuple[str, Table]]) -> None:
    for place, table in tables:
        try:
            check_table(table)
        except BadTable as problem:
            raise InvalidRequest(
                f"{place[:_PLACE]} is a table that cannot be read: {problem}"
            ) from None


def briefed(
    messages: Sequence[PostedMessage],
    brief: MessageContext,
    form: type[PostedBrief] = PostedBrief,
    /,
) -> tuple[PostedMessage, ...]:
    """The messages, of which the last one of the user says it; `form` is how it was posted.

    Raises:
        InvalidRequest: there is none.
    """
    if brief == _NOTHING:
        return tuple(messages)
    for position in reversed(range(len(messages))):
        message = messages[position]
        if isinstance(message, UserMessage):
            said = replace(message, brief=brief)
            return (*messages[:position], said, *messages[position + 1 :])
    if replace(brief, forgets=False, model="") == _NOTHING:
        return tuple(messages)  # many clients write null for what they do not have
    *names, last = (
        _name(form, field) for field in PostedBrief.model_fields if field not in _OF_ANY_POST
    )
    raise InvalidRequest(f"{', '.join(names)} and {last} need a user message")


def _name(form: type[PostedBrief], field: str) -> str:
    """What clients call a field."""
    return form.model_fields[field].alias or field


class BriefView(TypedDict):
    """What was posted beside a user's words; `at` is when it came, where the agent is told the time.

    `model` is the one that was chosen. `extras` are the keys of a request that its protocol does not have, where it keeps
    them.
    """

    structuredData: NotRequired[JsonValue]
    intent: NotRequired[str]
    constraints: NotRequired[list[str]]
    instructions: NotRequired[str]
    outputSchema: NotRequired[JsonValue]
    model: NotRequired[str]
    at: NotRequired[str]
    extras: NotRequired[JsonValue]


def show_brief(brief: MessageContext, /) -> BriefView:
    """What was posted, as it could be posted again."""
    view = _show_texts(brief)
    if brief.data is not None or brief.forgets:
        view["structuredData"] = brief.data
    if brief.constraints:
        view["constraints"] = list(brief.constraints)
    if brief.output_schema is not None:
        view["outputSchema"] = dict(brief.output_schema)
    if brief.extras is not None:
        view["extras"] = dict(brief.extras)
    return view


def _show_texts(brief: MessageContext) -> BriefView:
    view: BriefView = {}
    if brief.intent:
        view["intent"] = brief.intent
    if brief.instructions:
        view["instructions"] = brief.instructions
    if brief.model:
        view["model"] = brief.model
    if brief.at:
        view["at"] = brief.at
    return view
