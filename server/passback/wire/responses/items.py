"""The Response object and its output items, as JSON. No I/O."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias, assert_never

from pydantic import JsonValue

from passback.core.events import Cancelled, Completed, Failed, HandedBack, Outcome
from passback.core.messages import (
    AssistantMessage,
    CallId,
    Content,
    JsonObject,
    Message,
    MessageId,
    Owed,
    RunId,
    Usage,
    as_text,
)
from passback.core.text import bare_json, read_json
from passback.core.transcript import innermost_message
from passback.wire.responses.errors import find_class

Item: TypeAlias = dict[str, Any]
"""An output item, or another object of the protocol."""

SERVER_LABEL: Final = "server"
"""The `server_label` of tools that belong to no MCP server."""

STOPPED: Final = "The call was stopped."
_NAMES_OF_REASONS: Final[Mapping[str, str]] = {"max_tokens": "max_output_tokens"}


# ---------------------------------------------------------------- ids
def response_id(run_id: RunId, /) -> str:
    """Return the id of the response that a run gives."""
    return f"resp_{run_id.removeprefix('run_')}"


def run_of_response(given: str, /) -> RunId:
    """Return the run of a response's id."""
    return RunId(f"run_{given.removeprefix('resp_')}")


def item_id(kind: str, source: MessageId | CallId, /, number: int = 1) -> str:
    """Return the id of an item: the kind, and the id of the message or call without its own kind.

    `number`: of the items of this kind in one message.
    """
    made = source.partition("_")[2] or source
    return f"{kind}_{made}" if number == 1 else f"{kind}_{made}_{number}"


def refusal_id(run_id: RunId, /) -> str:
    """Return the id of the message by which the model refuses to answer: the record may have none.

    `is_said_in` finds it by its run.
    """
    return item_id("msg", MessageId(run_id))


def is_said_in(message: Message, sources: Collection[MessageId | CallId], /) -> bool:
    """Return whether one of the items, by what `source_of_item` gives of them, is of a message."""
    said = innermost_message(message)
    calls = said.tool_calls if isinstance(said, AssistantMessage) else ()
    ids = (said.id, source_of_item(refusal_id(message.run_id)), *(each.id for each in calls))
    return any(each in sources for each in ids)


def source_of_item(given: str, /) -> MessageId | CallId:
    """Return the message, or the call, to which an item with this id belongs."""
    kind, _, made = given.partition("_")
    first = made.partition("_")[0]
    return MessageId(f"msg_{first}") if kind in {"msg", "rs"} else CallId(f"call_{made}")


# ---------------------------------------------------------------- items
def text_part(text: str, /) -> Item:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def refusal_part(text: str, /) -> Item:
    return {"type": "refusal", "refusal": text}


def message_item(identity: str, status: str, content: Sequence[Item], /) -> Item:
    return {
        "id": identity,
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": list(content),
    }


def reasoning_item(identity: str, summary: str | None, /) -> Item:
    parts = [] if summary is None else [{"type": "summary_text", "text": summary}]
    return {"id": identity, "type": "reasoning", "summary": parts}


def call_item(call: Owed, /) -> Item:
    """Return the call of a client's function."""
    return {
        "id": item_id("fc", call.id),
        "type": "function_call",
        "status": "completed",
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments,
    }


def server_call_item(
    call_id: CallId, name: str, arguments: str, servers: Collection[str], /
) -> Item:
    """Return a call that the server makes, before it has a result."""
    label, tool = split_label(name, servers)
    return {
        "id": item_id("mcp", call_id),
        "type": "mcp_call",
        "status": "in_progress",
        "server_label": label,
        "name": tool,
        "arguments": arguments,
        "approval_request_id": None,
        "output": None,
        "error": None,
    }


def with_result(item: Item, content: Content | None, failed: bool, /) -> Item:
    """Return a call of the server's with its result; None: it was stopped."""
    text = STOPPED if content is None else as_text(content, media=lambda part: f"[{part.type}]")
    if failed:
        parts = [{"type": "text", "text": text}]
        error = {"type": "mcp_tool_execution_error", "content": parts}
        return {**item, "status": "failed", "error": error}
    return {**item, "status": "completed", "output": text}


def approval_item(call: Owed, servers: Collection[str], /) -> Item:
    """Return the request for a person's decision on a call of the server's."""
    label, tool = split_label(call.name, servers)
    return {
        "id": call.id,
        "type": "mcp_approval_request",
        "server_label": label,
        "name": tool,
        "arguments": call.arguments,
    }


def owed_item(call: Owed, servers: Collection[str], /) -> Item:
    return approval_item(call, servers) if call.kind == "approval" else call_item(call)


def split_label(name: str, servers: Collection[str], /) -> tuple[str, str]:
    """Return the label of the MCP server that a tool belongs to, and the tool's name there."""
    server, mark, tool = name.partition("__")
    return (server, tool) if mark and server in servers else (SERVER_LABEL, name)


# ---------------------------------------------------------------- the response
def response_object(
    run_id: RunId,
    note: JsonObject,
    /,
    *,
    status: str,
    output: Sequence[Item] = (),
    outcome: Outcome | None = None,
    usage: Usage | None = None,
    completed: int | None = None,
) -> Item:
    """Return the Response object.

    Args:
        run_id: of the run.
        note: what the request has asked for, as `reading.note_of` gives it.
        status: of the response.
        output: its items.
        outcome: of the run, if it has ended.
        usage: of the run.
        completed: when it ended, in seconds since 1970.
    """
    reason = outcome.reason if isinstance(outcome, Completed) and status == "incomplete" else None
    return {
        "id": response_id(run_id),
        "object": "response",
        "status": status,
        "completed_at": completed if status == "completed" else None,
        "error": response_error(outcome) if isinstance(outcome, Failed) else None,
        "incomplete_details": reason and {"reason": _NAMES_OF_REASONS.get(reason, reason)},
        **note,
        "output": list(output),
        "usage": None if usage is None else usage_view(usage),
    }


def status_of(outcome: Outcome, /) -> str:
    """Return the status of a response whose run has ended."""
    match outcome:
        case Completed(reason):
            return "completed" if reason in {"end_turn", "refusal"} else "incomplete"
        case HandedBack():
            return "completed"
        case Cancelled():
            return "cancelled"
        case Failed():
            return "failed"
        case _:
            assert_never(outcome)


def is_cut(outcome: Outcome, /) -> bool:
    """Return whether the message with which a run ends is not whole."""
    if isinstance(outcome, Completed):
        return outcome.reason == "max_tokens"
    return isinstance(outcome, Cancelled | Failed)


def response_error(failed: Failed, /) -> Item:
    """Return the error of a failed response. Some clients want all four keys."""
    known = find_class(failed.code)
    return {
        "code": known.code or failed.code,
        "message": failed.message,
        "type": known.type,
        "param": None,
    }


def usage_view(usage: Usage, /) -> Item:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def accepted_text(value: JsonValue, /) -> str:
    """Return the text of an answer that fits its schema: JSON, without what a model puts around."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def final_text(text: str, /) -> str:
    """Return the last text of an answer that has to be JSON. What is none stays as it is."""
    value = read_json(bare_json(text))
    return accepted_text(value) if isinstance(value, dict) else text
