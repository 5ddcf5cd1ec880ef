"""Models of requests: `AgentRequest` and its messages. `reading` turns them into commands."""

from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from pydantic import ConfigDict, Field, JsonValue

from passback.core.posts import OnBusy, OnDisconnect, ResentRole
from passback.http.requests import OptionalId
from passback.native.declarations import DeclaredTool
from passback.native.message_context import PostedContext
from passback.native.parts import MAX_ITEMS, SnakeCased

_MAX_MESSAGES: Final = 10_000  # of a request: some clients send the whole conversation each time
ID_CHARACTERS: Final = 256  # of an id, at most
_ShortText: TypeAlias = Annotated[str, Field(max_length=ID_CHARACTERS)]
_CallId: TypeAlias = Annotated[str, Field(min_length=1, max_length=256)]
_Penalty: TypeAlias = Annotated[float, Field(ge=-2, le=2)]


class AgentText(SnakeCased):
    type: Literal["text"]
    text: str | None = None


class AgentImage(SnakeCased):
    type: Literal["image"]
    image_url: str | None = None


class AgentData(SnakeCased):
    type: Literal["data"]
    data: dict[str, JsonValue] | None = None


class AgentAudio(SnakeCased):
    """Audio. `data` is base64 with a `format` such as `wav`, or a URL."""

    type: Literal["audio"]
    data: str | None = None
    format: _ShortText | None = None


class AgentFile(SnakeCased):
    """A file, by `file_url` or by `file_data` in base64.

    The server keeps no files: a `file_id` is refused.
    """

    type: Literal["file"]
    file_url: str | None = None
    file_id: str | None = None
    filename: _ShortText | None = None
    file_name: _ShortText | None = None
    file_data: str | None = None


class AgentVideo(SnakeCased):
    type: Literal["video"]
    video_url: str | None = None


class AgentRefusal(SnakeCased):
    type: Literal["refusal"]
    refusal: str


Part: TypeAlias = Annotated[
    AgentText | AgentImage | AgentData | AgentAudio | AgentFile | AgentVideo | AgentRefusal,
    Field(discriminator="type"),
]


RESULT_TYPE: Final = "function_call_output"
APPROVAL_TYPE: Final = "mcp_approval_response"
AGENT_TYPES: Final = frozenset(
    {
        *("reasoning", "function_call", "mcp_approval_request", "mcp_list_tools", "a2ui_response"),
        *("plugin_call", "plugin_call_output", "component_call", "component_call_output"),
        *("mcp_call", "mcp_call_output"),
    }
)
"""Types of the agent's messages within a turn, its texts excepted."""
CALL_TYPES: Final = frozenset({"function_call", "plugin_call", "component_call", "mcp_call"})
RESULT_TYPES: Final = frozenset(f"{kind}_output" for kind in CALL_TYPES)
IGNORED_TYPES: Final = frozenset({"heartbeat", "error"})


class AgentInput(SnakeCased):
    """A user's text (`message`), a result (`function_call_output`), or a decision.

    A decision has the type `mcp_approval_response`. Messages of the agent are ignored, because the
    server keeps the conversation. Where the server's settings allow them, they begin a new one.
    """

    role: Literal["user", "assistant", "system", "tool"] | None = None
    type: Annotated[str, Field(max_length=64)] = "message"
    content: Annotated[list[Part], Field(fail_fast=True, max_length=MAX_ITEMS)] | None = None
    id: OptionalId | None = None
    status: _ShortText | None = None

    @property
    def is_answer(self) -> bool:
        return self.type in {RESULT_TYPE, APPROVAL_TYPE}

    @property
    def is_from_agent(self) -> bool:
        if self.is_answer or self.type in IGNORED_TYPES:
            return False
        return self.role == "assistant" or self.type in AGENT_TYPES

    @property
    def resent_role(self) -> ResentRole:
        """The role by which a client that sends the whole conversation each time is understood."""
        if self.is_answer:
            return "answer"
        if self.type in IGNORED_TYPES:
            return "ignored"
        if self.is_from_agent:
            return "call" if self.type in AGENT_TYPES else "text"
        return "user"


class ResultData(SnakeCased):
    """The body of a `function_call_output`. `is_error`: the tool failed."""

    call_id: _CallId
    output: JsonValue
    is_error: bool = False


class CallData(SnakeCased):
    """The body of a call that the agent made; `arguments` is the text of a JSON object."""

    call_id: _CallId
    name: str
    arguments: str


class ApprovalData(SnakeCased):
    """The body of an `mcp_approval_response`.

    `always`: the decision also holds for later calls of the tool in this session.
    """

    approval_request_id: _CallId
    approve: bool
    reason: Annotated[str, Field(max_length=10_000)] | None = None
    always: bool = False


class AgentRequest(PostedContext):
    """A request with the new messages, or with the whole conversation.

    Only the messages after the agent's last text are read. Unknown keys are kept.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(alias_generator=str, extra="allow")

    input: Annotated[list[AgentInput], Field(fail_fast=True, max_length=_MAX_MESSAGES)]
    stream: bool | None = Field(True, description="`false`: one JSON response at the end.")
    id: _ShortText | None = Field(None, description="Becomes the response's id.")
    session_id: Annotated[str, Field(max_length=256)] | None = Field(
        None, description="The conversation; missing or empty: a new one."
    )
    user_id: _ShortText | None = Field(
        None, description="Accepted and ignored: the API key names the owner."
    )
    agent_id: _ShortText | None = Field(
        None, description="The agent's name, where the server has several agents."
    )
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    stop: (
        Annotated[str, Field(min_length=1, max_length=256)]
        | Annotated[
            list[Annotated[str, Field(min_length=1, max_length=256)]],
            Field(fail_fast=True, max_length=16),
        ]
        | None
    ) = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    frequency_penalty: _Penalty | None = None
    presence_penalty: _Penalty | None = None
    n: int | None = Field(1, description="1: there is one answer.")
    tools: list[DeclaredTool] | None = Field(
        None,
        description="The client's tools. They replace the session's; without the key those stay; "
        "`[]` clears.",
    )
    after: OptionalId | None = Field(
        None,
        description="The id of the message that the new ones follow, as in `/send-message`, or of "
        "a text or a reasoning in an answer. With an empty `input`, it is answered anew.",
    )
    on_busy: OnBusy | None = Field(
        None, description="What a new message means while a run goes on, as in `/send-message`."
    )
    on_disconnect: OnDisconnect | None = Field(
        None, description="`cancel`: a run that nobody follows is cancelled."
    )
