"""Models of requests: `CreateResponse` and its input items. `reading` turns them into commands.

Null is the same as a missing key, and unknown keys are ignored: clients add some every month.
"""

from typing import Annotated, ClassVar, Final, Literal, TypeAlias, cast

from pydantic import BeforeValidator, Field, JsonValue

from passback.core.posts import ResentRole
from passback.native.parts import MAX_ITEMS, SnakeCased

_MAX_INPUT: Final = 10_000  # items of a request: most clients send the whole conversation
_INPUT_CHARACTERS: Final = 10_485_760
_MAX_METADATA: Final = 16
_Id: TypeAlias = Annotated[str, Field(max_length=256)]
_CallId: TypeAlias = Annotated[str, Field(min_length=1, max_length=64)]
_Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]
_Penalty: TypeAlias = Annotated[float, Field(ge=-2, le=2)]
_ShortText: TypeAlias = Annotated[str, Field(max_length=4_096)]


# ---------------------------------------------------------------- content
class InputText(SnakeCased):
    type: Literal["input_text", "output_text", "text", "summary_text", "reasoning_text"]
    text: str


class InputRefusal(SnakeCased):
    type: Literal["refusal"]
    refusal: str


class InputImage(SnakeCased):
    """An image by a URL, which may be a `data:` URL. The server keeps no files."""

    type: Literal["input_image"]
    image_url: str | None = None
    file_id: str | None = None


class InputFile(SnakeCased):
    """A file by `file_url`, or by `file_data`: a `data:` URL, or base64 with a `filename`."""

    type: Literal["input_file"]
    file_url: str | None = None
    file_data: str | None = None
    filename: _ShortText | None = None
    file_id: str | None = None


class InputSound(SnakeCased):
    """Sound: base64 with its format."""

    type: Literal["input_audio"]
    input_audio: dict[str, JsonValue]


ContentPart: TypeAlias = Annotated[
    InputText | InputRefusal | InputImage | InputFile | InputSound, Field(discriminator="type")
]
Parts: TypeAlias = Annotated[list[ContentPart], Field(fail_fast=True, max_length=MAX_ITEMS)]


# ---------------------------------------------------------------- items
class MessageItem(SnakeCased):
    """A message. Those of the assistant are what the server has said."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: str | Parts
    id: _Id | None = None

    @property
    def resent_role(self) -> ResentRole:
        if self.role == "assistant":
            return "text"
        return "user" if self.role == "user" else "ignored"


class CallItem(SnakeCased):
    """A call of a client's function that the model has made."""

    resent_role: ClassVar[ResentRole] = "call"
    type: Literal["function_call"]
    call_id: _CallId
    name: str
    arguments: str
    id: _Id | None = None


class OutputItem(SnakeCased):
    """The result of a call: a text, or parts."""

    resent_role: ClassVar[ResentRole] = "answer"
    type: Literal["function_call_output"]
    call_id: _CallId
    output: str | Parts
    id: _Id | None = None


class ApprovalItem(SnakeCased):
    """A person's decision on a call of the server's."""

    resent_role: ClassVar[ResentRole] = "answer"
    type: Literal["mcp_approval_response"]
    approval_request_id: _CallId
    approve: bool
    reason: Annotated[str, Field(max_length=10_000)] | None = None
    id: _Id | None = None


class SaidItem(SnakeCased):
    """An item of the server's within a turn, or a reference to any item of its."""

    type: Literal[
        "reasoning",
        "item_reference",
        "mcp_call",
        "mcp_list_tools",
        "mcp_approval_request",
    ]
    id: _Id | None = None

    @property
    def resent_role(self) -> ResentRole:
        # an item is referred to without its kind; the ids tell it
        is_text = self.type == "item_reference" and (self.id or "").startswith("msg_")
        return "text" if is_text else "call"


def _with_type(item: object) -> object:
    """Return an item with its type, which may be missing: a role or an id tells it."""
    if not isinstance(item, dict):
        return item
    known = cast("dict[str, object]", item)
    if known.get("type") is not None:
        return known
    refers = "role" not in known and "id" in known
    return {**known, "type": "item_reference" if refers else "message"}


InputItem: TypeAlias = Annotated[
    Annotated[
        MessageItem | CallItem | OutputItem | ApprovalItem | SaidItem, Field(discriminator="type")
    ],
    BeforeValidator(_with_type),
]


# ---------------------------------------------------------------- the request
class FunctionChoice(SnakeCased):
    type: Literal["function"]
    name: _Name


class AllowedTools(SnakeCased):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[FunctionChoice], Field(fail_fast=True, max_length=128)]


class TextFormat(SnakeCased):
    """The form of the answer. `json_schema`: JSON that fits the schema, of type object."""

    type: Literal["text", "json_object", "json_schema"]
    name: _Name | None = None
    schema_: dict[str, JsonValue] | None = Field(None, alias="schema")
    strict: bool | None = None
    description: _ShortText | None = None


class TextOptions(SnakeCased):
    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningOptions(SnakeCased):
    effort: Annotated[str, Field(max_length=64)] | None = None
    summary: Annotated[str, Field(max_length=64)] | None = None


class ConversationName(SnakeCased):
    id: Annotated[str, Field(min_length=1, max_length=256)]


class CreateResponse(SnakeCased):
    """A request for a response. What the server has already said may be resent, and is skipped."""

    model: Annotated[str, Field(max_length=256)] | None = Field(
        None,
        description="The name of an agent, or of a model that a post may choose; a server with one "
        "agent takes any other name for it.",
    )
    input: (
        Annotated[str, Field(max_length=_INPUT_CHARACTERS)]
        | Annotated[list[InputItem], Field(fail_fast=True, max_length=_MAX_INPUT)]
        | None
    ) = None
    instructions: Annotated[str, Field(max_length=32_768)] | None = Field(
        None, description="The caller's instructions for this response. Later ones have their own."
    )
    previous_response_id: Annotated[str, Field(max_length=256)] | None = None
    conversation: Annotated[str, Field(max_length=256)] | ConversationName | None = None
    tools: Annotated[list[dict[str, JsonValue]], Field(max_length=128)] | None = Field(
        None, description="The client's functions for this response. Other types are left out."
    )
    tool_choice: Literal["auto", "none", "required"] | FunctionChoice | AllowedTools | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: Annotated[int, Field(ge=1)] | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: _Penalty | None = None
    frequency_penalty: _Penalty | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    max_output_tokens: Annotated[int, Field(ge=16, le=10_000_000)] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    include: Annotated[list[_ShortText], Field(max_length=100)] | None = None
    metadata: (
        Annotated[
            dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]],
            Field(max_length=_MAX_METADATA),
        ]
        | None
    ) = None
    store: bool | None = None
    background: bool | None = None
    stream: bool | None = None
    stream_options: dict[str, JsonValue] | None = None
    service_tier: _ShortText | None = None
    user: _ShortText | None = None
    safety_identifier: _ShortText | None = None
    prompt_cache_key: _ShortText | None = None
