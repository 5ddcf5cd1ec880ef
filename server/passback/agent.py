"""Agents as users write them: an `Agent` has a prompt and tools.

`passback serve module:agent` serves it, `passback.session` runs it from Python.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, TypeAlias

from pydantic import (
    BaseModel,
    Discriminator,
    Field,
    JsonValue,
    PydanticUserError,
    Tag,
    ValidationError,
)

from passback.context.prompt import (
    ASK_GUIDE,
    CONDUCT,
    DATA_GUIDE,
    MAX_PASTED_BYTES,
    PromptLayers,
    output_guide,
    static_prompt,
)
from passback.core.budgets import Budget
from passback.core.context import ExtraPrompt, prompt_section
from passback.core.errors import ConfigurationError
from passback.core.messages import JsonObject
from passback.core.permissions import Decision, Rule, pattern_rule
from passback.core.ports import ModelClient
from passback.core.toolsets import Toolset
from passback.core.values import Takes, accepts, check_fields, is_instance
from passback.engine.commands import COMMAND_NAME, CommandHandler
from passback.engine.guarding import ExtraPromptFunction, extra_prompt
from passback.engine.judging import AnswerCheck
from passback.models.choice import check_model_names
from passback.schemas.checks import InvalidSchema, check_schema
from passback.setting_forms import MAX_WINDOW, MIN_WINDOW
from passback.toolsets.data import DATA_TOOLS
from passback.toolsets.functions import (
    Function,
    FunctionTool,
    FunctionTools,
    tool,
    validation_problems,
)
from passback.toolsets.mcp import MCPServer, refuse_clashes
from passback.toolsets.plan import PlanTools


@dataclass(frozen=True, slots=True)
class Fork:
    """A sub-agent that is a copy of the agent in whose `agents` it is listed.

    The model calls it as a tool, with a task. The copy begins with everything that the model was
    shown when it made the call, and has the agent's prompt, tools, permissions and model, so that
    it uses the same prompt cache at the provider. A fork cannot fork.

    Args:
        name: name of the tool.
        description: the tool's description for the model.
        concurrent: True if several forks, other sub-agents and read-only tools may run at the
            same time.

    Raises:
        ConfigurationError: an argument has the wrong type or value.
    """

    name: str = "fork"
    description: str = (
        "Gives one task to a copy of you that knows all that was said here; its last words are "
        "the result. For a part of the work that needs what was said, and whose details you do "
        "not need to see. Several called together work side by side."
    )
    concurrent: bool = True

    def __post_init__(self) -> None:
        check_fields(self, Fork)


# Types of arguments of `Agent`, with words for its errors.
_MODEL_WORDS = "a model's name, such as 'openai:gpt-5', or a client"
_Model: TypeAlias = Annotated[ModelClient | str, Takes(_MODEL_WORDS, is_instance)]
_SingleModel: TypeAlias = Annotated[
    ModelClient | str,
    # PASSBACK_MODELS separates names by commas
    Takes(
        _MODEL_WORDS,
        lambda given: "," not in given if isinstance(given, str) else is_instance(given),
    ),
]
_Toolset: TypeAlias = Annotated[Toolset, Takes("a toolset, such as an MCPServer", is_instance)]
_RULE_WORDS = "a function of two arguments, the call and the run"
_Permissions: TypeAlias = Annotated[
    Annotated[Mapping[str, Decision], Tag("dict")]
    | Annotated[Rule, Takes(_RULE_WORDS, accepts(2)), Tag("rule")],
    # only the errors of one kind are told
    Discriminator(
        lambda given: "rule" if callable(given) else "dict" if isinstance(given, Mapping) else None,
        custom_error_type="takes",
        custom_error_message=(
            f"Input should be a dict of decisions by tool name, or {_RULE_WORDS}"
        ),
    ),
]
_Context: TypeAlias = Annotated[
    ExtraPromptFunction, Takes("a function of one argument, the run", accepts(1))
]
_Window: TypeAlias = Annotated[
    int,
    Takes(
        f"0, or from {MIN_WINDOW} to {MAX_WINDOW} tokens",
        lambda tokens: tokens == 0 or MIN_WINDOW <= tokens <= MAX_WINDOW,
    ),
]
_Command: TypeAlias = Annotated[
    CommandHandler,
    Takes("a function of two arguments, the text and a CommandContext", accepts(2)),
]
_CommandName: TypeAlias = Annotated[
    str,
    Takes(
        "a name, at most 32 of a-z, 0-9, _ and -, a letter first",
        lambda name: COMMAND_NAME.fullmatch(name) is not None,
    ),
]


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent.

    Args:
        model: a client, or a name as in `PASSBACK_MODEL` (`openai:gpt-5`). None: the settings'.
        models: clients or names of models that a post may choose instead of `model`, or beside
            it. Empty: a post cannot choose. None: the settings'. Where the agent works for
            another agent, it keeps its own model.
        prompt: the system prompt.
        tools: server tools: functions, decorated with `@tool` or plain.
        toolsets: other sources of server tools, such as an `MCPServer`.
        agents: sub-agents, which the model calls as tools. Each needs a name and a description.
            A `Fork` is a copy of this agent.
        name: name by which clients and other agents choose it. None: the NAME of
            `passback serve MODULE:NAME`.
        description: its description for the models of other agents.
        concurrent: for its work as a sub-agent: True if it may run at the same time as the other
            sub-agents and read-only tools. False: alone, one task at a time.
        conduct: section of rules behind the prompt. An empty text leaves them out.
        max_turns: model calls in one run. None: the settings'.
        budget: limits of what its runs may spend. The settings' limits hold as well, the tighter
            ones count. Where it works for another agent, that agent's count.
        window: the model's context window in tokens, request and answer together. Older parts of
            a conversation make room for new ones. 0: nothing is left out. None: the settings'.
        options: passed to the model's service unchanged, such as `{"temperature": 0}`; clients may
            choose another effort of reasoning where one is among them.
        permissions: which server tools may be called. Either decisions by name, where the first
            matching pattern counts (`{"delete_*": "ask", "*": "allow"}`), or a function that
            judges a call, plain or async. Where it returns None, the tool's own permission counts.
        ask_user: True if the model may ask the user by the built-in tool `ask_user`, even where
            the client has not declared that it shows such questions.
        plan: True if it has the tool `update_plan`, by which the model shows its plan.
        context: returns text for the model that holds for one run only, behind the prompt, such
            as what is remembered of the owner: a function of the run, plain or async. It is
            called once in each run and has 30 seconds. At most 64 KiB of its text are used. If
            it fails, the model is told that something is missing.
        tell_time: True if the model is told when each message came.
        data_tools: True if the model may query, summarise and validate the structured data of
            posts. It is then shown only an outline of large data.
        output_schema: schema of every answer, unless a post brings its own: a JSON Schema of type
            object, or a pydantic model. A model's own validators judge, too, in a thread, for 10
            seconds at most.
        commands: slash commands of its own, by their names without the slash: functions, plain or
            async, of the argument's text and a `CommandContext`, that return the answer. Their
            docstrings are shown to users.
        deps: passed to its tools as `ToolContext.deps`. The model cannot see it.

    Raises:
        ConfigurationError: an argument has the wrong type or value. Arguments that contradict each
            other are found at start.
    """

    model: _Model | None = None
    prompt: str = ""
    tools: Sequence[Annotated[FunctionTool | Function, Takes("a function")]] = ()
    toolsets: Sequence[_Toolset] = ()
    agents: Sequence[Annotated["Agent | Fork", Takes("an Agent or a Fork")]] = ()
    name: str | None = None
    description: str = ""
    concurrent: bool = True
    conduct: str = CONDUCT
    max_turns: Annotated[int, Field(ge=1)] | None = None
    options: JsonObject = field(default_factory=dict[str, JsonValue])
    permissions: _Permissions | None = None
    ask_user: bool = False
    window: _Window | None = None
    plan: bool = False
    budget: Budget = field(default_factory=Budget)
    context: _Context | None = None
    tell_time: bool = True
    data_tools: bool = False
    output_schema: Annotated[
        JsonObject | type[BaseModel] | None,
        Takes("a JSON Schema of type object, or a pydantic model"),
    ] = None
    commands: Mapping[_CommandName, _Command] = field(default_factory=dict[str, CommandHandler])
    deps: object = field(default=None, repr=False)
    models: Sequence[_SingleModel] | None = None

    def __post_init__(self) -> None:
        """Raise ConfigurationError for a wrong argument at once, not in the first run."""
        check_fields(self, Agent)
        for name, model in (
            ("model", self.model),
            *(("models", each) for each in self.models or ()),
        ):
            if isinstance(model, str):
                try:
                    check_model_names(model)
                except ConfigurationError as error:
                    raise ConfigurationError(f"Agent: {name}: {error.message}") from None

    def own_toolsets(self) -> tuple[Toolset, ...]:
        """Return the agent's toolsets, its sub-agents excepted.

        Raises:
            ConfigurationError: a function cannot be a tool, or two tools have the same name or
                could get it.
        """
        functions = [one if isinstance(one, FunctionTool) else tool(one) for one in self.tools]
        servers = [one for one in self.toolsets if isinstance(one, MCPServer)]
        # sub-agents are tools for the model: their names count
        others = [one.name or "" for one in self.agents]
        refuse_clashes(servers, [*(one.spec.name for one in functions), *others])
        own = [FunctionTools(functions)] if functions else []
        data, plan = [DATA_TOOLS] if self.data_tools else [], [PlanTools()] if self.plan else []
        return (*own, *data, *plan, *self.toolsets)

    def permission_rules(self) -> tuple[Rule, ...]:
        """Return the agent's permission rules. Raise ConfigurationError if they are not legal."""
        if self.permissions is None:
            return ()
        given = self.permissions
        return (given if callable(given) else pattern_rule(given),)

    def static_prompt(self, prompt: str | None = None) -> str:
        """Return the static prompt of every run: prompt, conduct and the guides of features.

        Args:
            prompt: in place of the agent's own.

        Raises:
            ConfigurationError: as `answer_schema` does.
        """
        schema = self.answer_schema()
        guides = [
            DATA_GUIDE if self.data_tools else "",
            ASK_GUIDE if self.ask_user else "",
            "" if schema is None else output_guide(schema),
        ]
        return static_prompt(prompt or self.prompt, self.conduct, guides)

    def prompt_layers(self) -> PromptLayers:
        return PromptLayers(MAX_PASTED_BYTES if self.data_tools else None)

    def extra_prompt(self) -> ExtraPrompt | None:
        if self.context is None:
            return None
        return extra_prompt(self.context, shown=partial(prompt_section, "Context"))

    def answer_check(self) -> AnswerCheck | None:
        """Return the check by the pydantic model of `output_schema`, None without one."""
        model = self.output_schema
        if not isinstance(model, type):
            return None

        def find_misfit(answer: str) -> str | None:
            try:
                model.model_validate_json(answer)
            except ValidationError as error:
                return validation_problems(error, of="answer")
            return None

        return find_misfit

    def answer_schema(self) -> JsonObject | None:
        """Return the JSON Schema of answers, or None.

        Raises:
            ConfigurationError: `output_schema` is not a supported JSON Schema.
        """
        given = self.output_schema
        if given is None:
            return None
        try:
            # a model is given as its schema; its own validators are in `answer_check`
            return check_schema(
                given.model_json_schema() if isinstance(given, type) else dict(given)
            )
        except InvalidSchema as problem:
            raise ConfigurationError(f"the agent's output_schema: {problem}") from None
        except PydanticUserError as error:
            raise ConfigurationError(
                f"the agent's output_schema has no JSON Schema: {error.message}"
            ) from error
