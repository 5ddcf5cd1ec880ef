"""Reading of a request as a command: finds the messages that are new, and converts them."""

from collections.abc import Sequence
from dataclasses import replace

from passback.core.errors import InvalidRequest, NothingToDo
from passback.core.messages import (
    ConversationKey,
    Generation,
    MessageId,
    OwnerId,
    PostedMessage,
    UserMessage,
)
from passback.core.posts import StartRun
from passback.core.repeats import ResentRole, new_indexes
from passback.http.requests import posted_conversation_id
from passback.http.wires import Services
from passback.native.declarations import parse_tools
from passback.native.message_context import add_context, read_context, refuse_large
from passback.wire.agent_api.content import read_at, read_history, read_message
from passback.wire.agent_api.posted import AGENT_TYPES, IGNORED_TYPES, AgentInput, AgentRequest


async def read_request(
    services: Services, owner: OwnerId, key: str | None, post: AgentRequest, /
) -> StartRun:
    """Return the command of a request.

    Raises:
        ClientError: the request is not legal. The text names the place in a message.
    """
    if post.n not in {None, 1}:
        raise InvalidRequest("n has to be 1: there is one answer to a request")
    new = [(at, post.input[at]) for at in new_indexes([_role_of(each) for each in post.input])]
    if post.input and not new:
        raise NothingToDo(
            "input has nothing new: add a user's message or a result after the agent's last one"
        )
    messages = [
        read_at(f"input.{at}", read_message, services, each, post.agent_id or "")
        for at, each in new
    ]
    history, flaw = await read_history(services, post)
    conversation = ConversationKey(
        owner, posted_conversation_id(owner, key, post.session_id or None)
    )
    return StartRun(
        conversation,
        await _with_context(services, post, messages, conversation),
        None
        if post.tools is None
        else await parse_tools(post.tools, services.limits, conversation),
        idempotency_key=key,
        named=frozenset(MessageId(each.id) for _, each in new if each.id and not each.is_answer),
        on_busy=post.on_busy or services.on_busy,
        on_disconnect=post.on_disconnect or "continue",
        # a client of this protocol sends the conversation each time, and most give no ids
        resends=True,
        continues=not history and any(each.is_from_agent for each in post.input),
        history=history,
        flaw=flaw,
    )


def _role_of(message: AgentInput) -> ResentRole:
    if message.is_answer:
        return "answer"
    if message.type in IGNORED_TYPES:
        return "ignored"
    if message.is_from_agent:
        return "call" if message.type in AGENT_TYPES else "text"
    return "user"


async def _with_context(
    services: Services,
    post: AgentRequest,
    messages: Sequence[PostedMessage],
    key: ConversationKey,
) -> tuple[PostedMessage, ...]:
    brief = await read_context(post, services.limits, key)
    # without a user message, the context of the last one counts: results only continue its run
    if any(isinstance(each, UserMessage) for each in messages):
        if (generation := _generation_options(post)) != Generation():
            brief = replace(brief, generation=generation)
        if extras := post.model_extra:
            refuse_large("what the request says beyond the protocol", extras, services.limits)
            brief = replace(brief, extras=extras)
    return add_context(messages, brief, AgentRequest)


def _generation_options(post: AgentRequest) -> Generation:
    stop = (post.stop,) if isinstance(post.stop, str) else tuple(post.stop or ())
    return Generation(
        temperature=post.temperature,
        top_p=post.top_p,
        max_tokens=post.max_tokens,
        stop=stop or None,
        seed=post.seed,
        frequency_penalty=post.frequency_penalty,
        presence_penalty=post.presence_penalty,
    )
