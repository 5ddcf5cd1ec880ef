"""A response as the record has it: readable for as long as its conversation."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from passback.core.changes import RunRecord
from passback.core.events import Completed, HandedBack
from passback.core.messages import (
    ApprovalMessage,
    AssistantMessage,
    CallId,
    Content,
    DataPart,
    JsonObject,
    MediaPart,
    Message,
    Part,
    RunRef,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
    as_text,
)
from passback.core.runs import Runs
from passback.core.values import value
from passback.native.earlier import read_back
from passback.wire.responses.encoder import REFUSED, wants_schema
from passback.wire.responses.items import (
    Item,
    accepted_text,
    final_text,
    item_id,
    message_item,
    owed_item,
    reasoning_item,
    refusal_id,
    refusal_part,
    response_object,
    server_call_item,
    status_of,
    text_part,
    with_result,
)

# by results of these kinds a call is closed that was invalid, or that nobody has approved
_NEVER_MADE: Final = frozenset({"invalid", "superseded", "timeout"})


@value
class RecordedRun:
    """A run as it is recorded.

    Args:
        run: the run.
        record: what is kept of it.
        messages: its messages, those of its post included.
        calls: the calls of the messages that were read, those before it included.
    """

    run: RunRef
    record: RunRecord
    messages: Sequence[Message]
    calls: Mapping[CallId, ToolCall]


async def read_run(runs: Runs, run: RunRef, /) -> RecordedRun:
    """Return a run with its messages on the branch that is read.

    Raises:
        UnknownConversation, UnknownRun: there is none.
    """
    record = await runs.run(run)
    end = (await runs.status(run.key)).message_count
    own: list[Message] = []
    calls: dict[CallId, ToolCall] = {}
    async for page in read_back(runs, run.key, end):
        own[:0] = [each for each in page if each.run_id == run.run_id]
        turns = [each for each in page if isinstance(each, AssistantMessage)]
        calls |= {call.id: call for turn in turns for call in turn.tool_calls}
        # an approved call was made by the turn before the run
        if own and any(each.run_id != run.run_id for each in turns):
            break
    return RecordedRun(run, record, own, calls)


def recorded_response(found: RecordedRun, note: JsonObject, servers: Collection[str], /) -> Item:
    """Return the Response object of a recorded run, as far as it has got."""
    outcome = found.record.outcome
    ended = [
        each.started + each.duration
        for each in found.messages
        if isinstance(each, AssistantMessage) and each.started
    ]
    return response_object(
        found.run.run_id,
        note,
        status="in_progress" if outcome is None else status_of(outcome),
        output=_output_of(found, note, servers),
        outcome=outcome,
        usage=None if outcome is None or found.record.usage.is_nothing else found.record.usage,
        completed=ended[-1] // 1000 if ended else None,
    )


def _output_of(found: RecordedRun, note: JsonObject, servers: Collection[str]) -> list[Item]:
    output: list[Item] = []
    held = wants_schema(note)
    for message in found.messages:
        match message:
            case AssistantMessage():
                output += _turn_items(message, held=held)
            case ToolMessage(call_id=call_id, synthetic=synthetic):
                call = found.calls.get(call_id)
                if call is not None and not call.client and synthetic not in _NEVER_MADE:
                    item = server_call_item(call_id, call.name, call.arguments, servers)
                    output.append(with_result(item, message.content, message.is_error))
            case _:
                pass
    match found.record.outcome:
        case HandedBack(owed):
            output += [owed_item(each, servers) for each in owed]
        case Completed(reason):
            output += _end_items(found, reason, held=held)
        case _:
            pass
    return output


def _end_items(found: RecordedRun, reason: str, *, held: bool) -> list[Item]:
    """Return what was held back of the last turn, or that the model refuses to answer."""
    turns = [each for each in found.messages if isinstance(each, AssistantMessage)]
    text = "" if not turns or turns[-1].tool_calls else _text_of(turns[-1])
    if reason == "refusal" and (held or not text):
        part = refusal_part(final_text(text) or REFUSED)
        return [message_item(refusal_id(found.run.run_id), "completed", [part])]
    if reason == "end_turn" and held and text:
        part = text_part(final_text(text))
        return [message_item(item_id("msg", turns[-1].id), "completed", [part])]
    return []


def _turn_items(turn: AssistantMessage, *, held: bool) -> list[Item]:
    """Return what one answer of the model has said. Its text may be a draft (`held`)."""
    items: list[Item] = []
    thoughts = "".join(each.text for each in turn.reasoning)
    if thoughts:
        items.append(reasoning_item(item_id("rs", turn.id), thoughts))
    text = _text_of(turn)
    if text and not held:
        status = "incomplete" if turn.partial else "completed"
        items.append(message_item(item_id("msg", turn.id), status, [text_part(text)]))
    return items


def _text_of(turn: AssistantMessage) -> str:
    return as_text(turn.content, media=lambda part: f"[{part.type}]")


# ---------------------------------------------------------------- what was posted
def input_items(found: RecordedRun, /) -> list[Item]:
    """Return the items of the request: messages of the user, outputs of calls, and approvals."""
    items: list[Item] = []
    for message in found.messages:
        match message:
            case UserMessage():
                items.append(
                    {
                        "id": message.id,
                        "type": "message",
                        "status": "completed",
                        "role": "user",
                        "content": _input_parts(message.content),
                    }
                )
            case ToolMessage(call_id=call_id, synthetic=None):
                call = found.calls.get(call_id)
                if call is None or call.client:
                    items.append(
                        {
                            "id": message.id,
                            "type": "function_call_output",
                            "status": "completed",
                            "call_id": call_id,
                            "output": as_text(message.content, media=lambda part: part.url),
                        }
                    )
            case ApprovalMessage(call_id=call_id):
                items.append(
                    {
                        "id": message.id,
                        "type": "mcp_approval_response",
                        "approval_request_id": call_id,
                        "approve": message.approved,
                        "reason": message.reason or None,
                    }
                )
            case _:
                pass
    return items


def _input_parts(content: Content) -> list[Item]:
    parts: Sequence[Part] = (TextPart(content),) if isinstance(content, str) else content
    return [_input_part(part) for part in parts]


def _input_part(part: Part) -> Item:
    match part:
        case MediaPart(kind, url, _, name):
            if kind == "image":
                return {"type": "input_image", "image_url": url, "detail": "auto"}
            return {"type": "input_file", "file_url": url, "filename": name}
        case DataPart(data):
            return {"type": "input_text", "text": accepted_text(data)}
        case _:
            return {"type": "input_text", "text": part.text}
