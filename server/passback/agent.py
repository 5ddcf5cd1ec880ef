"""Agents as users write them: an `Agent` has a prompt and tools.

`passback serve module:agent` serves it, `passback.session` runs it from Python.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from pydantic import BaseModel, JsonValue, PydanticUserError, ValidationError

from passback.context.prompt import (
    ASK_GUIDE,
    CONDUCT,
    DATA_GUIDE,
    MAX_PASTED_BYTES,
    PromptLayers,
    output_guide,
    static_prompt,
)
from passback.core.arguments import (
    ArgumentRule,
    check_fields,
    collection_of,
    function_taking,
    instance_of,
    integer_within,
    is_flag,
    is_json_object,
    is_none,
    is_text,
    mapping_of,
    one_of,
)
from passback.core.budgets import Budget
from passback.core.commands import COMMAND_NAME, CommandHandler
from passback.core.errors import ConfigurationError
from passback.core.messages import JsonObject
from passback.core.permissions import Decision, Rule, pattern_rule
from passback.core.ports import ExtraPrompt, ModelClient, prompt_section
from passback.core.toolsets import Toolset
from passback.engine.guarding import ExtraPromptFunction, extra_prompt
from passback.engine.output import AnswerCheck
from passback.models.choice import check_model_names
from passback.schemas.declared import InvalidSchema, check_schema
from passback.settings import MAX_WINDOW, MIN_WINDOW
from passback.toolsets.data import DATA_TOOLS
from passback.toolsets.functions import (
    Function,
    FunctionTool,
    FunctionTools,
    tool,
    validation_problems,
)
from passback.toolsets.mcp import MCPServer
from passback.toolsets.mcp.server import refuse_clashes
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
        check_fields(self, FORK_ARGUMENTS)


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
        options: passed to the model's service unchanged, such as `{"temperature": 0}`.
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

    model: ModelClient | str | None = None
    prompt: str = ""
    tools: Sequence[FunctionTool | Function] = ()
    toolsets: Sequence[Toolset] = ()
    agents: Sequence["Agent | Fork"] = ()
    name: str | None = None
    description: str = ""
    concurrent: bool = True
    conduct: str = CONDUCT
    max_turns: int | None = None
    options: JsonObject = field(default_factory=dict[str, JsonValue])
    permissions: Mapping[str, Decision] | Rule | None = None
    ask_user: bool = False
    window: int | None = None
    plan: bool = False
    budget: Budget = field(default_factory=Budget)
    context: ExtraPromptFunction | None = None
    tell_time: bool = True
    data_tools: bool = False
    output_schema: JsonObject | type[BaseModel] | None = None
    commands: Mapping[str, CommandHandler] = field(default_factory=dict[str, CommandHandler])
    deps: object = field(default=None, repr=False)
    models: Sequence[ModelClient | str] | None = None

    def __post_init__(self) -> None:
        """Raise ConfigurationError for a wrong argument at once, not in the first run."""
        check_fields(self, AGENT_ARGUMENTS)
        for name, models in (("model", [self.model]), ("models", self.models or ())):
            _refuse_unknown_models(name, models)
        self.permission_rules()

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
        return partial(_model_misfit, model) if isinstance(model, type) else None

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


def _refuse_unknown_models(argument: str, models: Sequence[ModelClient | str | None]) -> None:
    for model in models:
        if isinstance(model, str):
            try:
                check_model_names(model)
            except ConfigurationError as error:
                raise ConfigurationError(f"Agent: {argument}: {error.message}") from None


def _is_model_name(value: object) -> bool:
    # PASSBACK_MODELS separates names by commas
    return is_text(value) and "," not in str(value)


def _is_model(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseModel)


def _is_command(value: object) -> bool:
    return isinstance(value, str) and COMMAND_NAME.fullmatch(value) is not None


AGENT_ARGUMENTS: Mapping[str, ArgumentRule] = {
    "model": ArgumentRule(
        "a model's name, such as 'openai:gpt-5', or a client",
        one_of(is_none, is_text, instance_of(ModelClient)),
    ),
    "models": ArgumentRule(
        "a list of models' names, such as 'openai:gpt-5', and clients",
        one_of(is_none, collection_of(one_of(_is_model_name, instance_of(ModelClient)))),
    ),
    "prompt": ArgumentRule("a text in Unicode", is_text),
    "tools": ArgumentRule("a list of functions", collection_of(callable)),
    "toolsets": ArgumentRule(
        "a list of toolsets, such as an MCPServer", collection_of(instance_of(Toolset))
    ),
    "agents": ArgumentRule(
        "a list of Agents and Forks", collection_of(one_of(instance_of(Agent), instance_of(Fork)))
    ),
    "name": ArgumentRule("a text", one_of(is_none, is_text)),
    "description": ArgumentRule("a text in Unicode", is_text),
    "concurrent": ArgumentRule("True or False", is_flag),
    "conduct": ArgumentRule("a text in Unicode", is_text),
    "max_turns": ArgumentRule("a whole number from 1 on", one_of(is_none, integer_within(1))),
    "options": ArgumentRule("a dict of JSON", is_json_object),
    "permissions": ArgumentRule(
        "a dict of decisions by the names of tools, or a function of two arguments, "
        "the call and the run",
        one_of(is_none, mapping_of(is_text, lambda _: True), function_taking(2)),
    ),
    "ask_user": ArgumentRule("True or False", is_flag),
    "window": ArgumentRule(
        f"0, or from {MIN_WINDOW} to {MAX_WINDOW} tokens",
        one_of(is_none, integer_within(0, 0), integer_within(MIN_WINDOW, MAX_WINDOW)),
    ),
    "plan": ArgumentRule("True or False", is_flag),
    "budget": ArgumentRule("a Budget", instance_of(Budget)),
    "context": ArgumentRule(
        "a function of one argument, the run", one_of(is_none, function_taking(1))
    ),
    "tell_time": ArgumentRule("True or False", is_flag),
    "data_tools": ArgumentRule("True or False", is_flag),
    "output_schema": ArgumentRule(
        "a JSON Schema of type object, or a pydantic model",
        one_of(is_none, _is_model, is_json_object),
    ),
    "commands": ArgumentRule(
        "a dict of functions of two arguments, the text and a CommandContext, by their names: "
        "at most 32 of a-z, 0-9, _ and -, a letter first",
        mapping_of(_is_command, function_taking(2)),
    ),
}
"""Legal types and values of the arguments of `Agent`; `deps` may be anything."""

FORK_ARGUMENTS: Mapping[str, ArgumentRule] = {
    "name": ArgumentRule("a text", is_text),
    "description": AGENT_ARGUMENTS["description"],
    "concurrent": AGENT_ARGUMENTS["concurrent"],
}


def _model_misfit(model: type[BaseModel], answer: str) -> str | None:
    """Return the errors that the model finds in an answer, None if it fits."""
    try:
        model.model_validate_json(answer)
    except ValidationError as error:
        return validation_problems(error, of="answer")
    return None
