"""What a request says that the agent said, as a history for a new conversation."""

from passback.core.errors import InvalidRequest
from passback.core.ids import new_message_id
from passback.core.imported import Placed, arguments_in, with_history
from passback.core.messages import (
    AssistantMessage,
    CallId,
    HistoryMessage,
    MessageId,
    ToolCall,
    as_text,
)
from passback.transport.parts import checked
from passback.transport.threads import work_on
from passback.transport.wires import Services
from passback.wire.agent_api.content import read_part
from passback.wire.agent_api.messages import at_place, body_of, read_words, result_of
from passback.wire.agent_api.posted import (
    APPROVAL,
    CALLS,
    RESULTS,
    UNHEARD,
    AgentInput,
    AgentRequest,
    CallData,
)


async def read_history(
    services: Services, post: AgentRequest, /
) -> tuple[tuple[HistoryMessage, ...], str]:
    """Return what can be stored before the new messages, where clients may bring it along; and else why not.

    Most clients send all that was said each time, also what no history can have: what is wrong with it matters only where
    there is no such conversation.
    """
    said = any(each.is_the_agents for each in post.input)
    if not said or "assistant" not in services.allow_roles:
        return (), ""
    read: list[Placed] = []
    try:
        for at, each in enumerate(post.input):
            _read(read, f"input.{at}", services, each)
        imported = await work_on(arguments_in(read), with_history, read, new_message_id)
        return imported.history, ""
    except InvalidRequest as error:
        return (), error.message


def _read(read: list[Placed], place: str, services: Services, message: AgentInput) -> None:
    """Add a message to those that were read; a turn's calls belong to the words before them."""
    if message.type in RESULTS:
        read.append((place, at_place(place, result_of, services, message)))
    elif message.type in CALLS:
        call = at_place(place, _call, message)
        first, turn = read[-1] if read else (place, None)
        if isinstance(turn, AssistantMessage):
            turn = AssistantMessage(turn.id, turn.content, (*turn.tool_calls, call))
            read[-1] = (first, turn)
        else:
            read.append((place, AssistantMessage(new_message_id(), "", (call,))))
    elif message.is_the_agents:
        said = at_place(place, _words, services, message) if message.type == "message" else None
        if said is not None:  # of what was thought and asked, nothing is stored
            read.append((place, said))
    elif message.type not in UNHEARD and message.type != APPROVAL:
        read.append((place, at_place(place, read_words, services, message, "")))


def _call(message: AgentInput) -> ToolCall:
    given = body_of(message, CallData)
    return ToolCall(CallId(given.call_id), given.name, given.arguments)


def _words(services: Services, message: AgentInput) -> AssistantMessage | None:
    """None: the agent says nothing."""
    parts = tuple(
        at_place(f"content.{at}", read_part, part) for at, part in enumerate(message.content or ())
    )
    if not as_text(parts, media=lambda part: part.url).strip():
        return None
    message_id = MessageId(message.id) if message.id else new_message_id()
    return AssistantMessage(message_id, checked(parts, services.limits.attachment_bytes))
