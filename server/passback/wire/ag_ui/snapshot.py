"""The recorded messages of a conversation as AG-UI has them."""

from collections.abc import AsyncIterator, Sequence
from typing import Final, TypeAlias

from pydantic import JsonValue

from passback.core.messages import (
    AssistantMessage,
    CallId,
    ChildMessage,
    Content,
    ConversationKey,
    DataPart,
    MediaPart,
    Message,
    Part,
    SystemMessage,
    ToolMessage,
    UserMessage,
    as_text,
)
from passback.core.runs import Runs
from passback.http.answers import write_json
from passback.native.earlier import PAGE_MESSAGES, read_range
from passback.native.parts import data_url
from passback.wire.ag_ui.encoder import reasoning_id

MOST_BYTES: Final = 8 * 1024 * 1024
"""Of a snapshot: the client takes frames of 10 MiB at most."""

_View: TypeAlias = dict[str, JsonValue]


async def read_snapshot(
    runs: Runs,
    key: ConversationKey,
    end: int,
    /,
    *,
    most: int = MOST_BYTES,
    helpers: bool = True,
) -> str:
    """Return the JSON text of the messages before the position `end`.

    Without `helpers`, those of sub-agents are left out. Of a conversation with more than `most`
    bytes the first messages are left out.

    Raises:
        UnknownConversation: there is none.
    """
    newest_first: list[str] = []
    size = 0
    async for view in _views_from_end(runs, key, end):
        if not helpers and "subagentRunId" in view:
            continue
        text = write_json(view)
        size += len(text) + 1
        if size > most:
            break
        newest_first.append(text)
    return f"[{','.join(reversed(newest_first))}]"


async def _views_from_end(runs: Runs, key: ConversationKey, end: int) -> AsyncIterator[_View]:
    while end > 0:
        start = max(0, end - PAGE_MESSAGES)
        for message in reversed(await read_range(runs, key, start, end)):
            for view in reversed(message_views(message)):
                yield view
        end = start


def message_views(message: Message, /, helper: CallId | None = None) -> Sequence[_View]:
    """Return what clients are shown of a message; of a sub-agent, what it says itself.

    Approvals, summaries and the server's corrections have no form in the protocol.
    """
    tag: _View = {} if helper is None else {"subagentRunId": helper}
    match message:
        case ChildMessage(call_id, inner):
            return message_views(inner, call_id)
        case UserMessage() if helper is None:
            return [{"id": message.id, "role": "user", "content": _content_view(message.content)}]
        case SystemMessage(synthetic=None) if helper is None:
            return [{"id": message.id, "role": "system", "content": _text(message.content)}]
        case AssistantMessage():
            return _assistant_views(message, tag)
        case ToolMessage():
            view: _View = {
                "id": message.id,
                "role": "tool",
                "toolCallId": message.call_id,
                "content": _text(message.content),
                **tag,
            }
            if message.is_error:
                view["error"] = _text(message.content)
            return [view]
        case _:
            return ()


def _assistant_views(message: AssistantMessage, tag: _View) -> Sequence[_View]:
    view: _View = {"id": message.id, "role": "assistant", "content": _text(message.content), **tag}
    if message.tool_calls:
        view["toolCalls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    thought = "".join(each.text for each in message.reasoning)
    if not thought:
        return [view]
    return [
        {"id": reasoning_id(message.id), "role": "reasoning", "content": thought, **tag},
        view,
    ]


def _text(content: Content) -> str:
    return as_text(content, media=lambda part: part.url)


def _content_view(content: Content) -> JsonValue:
    return content if isinstance(content, str) else [_part_view(part) for part in content]


def _part_view(part: Part) -> _View:
    if not isinstance(part, MediaPart):
        text = _text((part,)) if isinstance(part, DataPart) else part.text
        return {"type": "text", "text": text}
    source: _View = {"type": "url", "value": part.url}
    found = data_url(part.url)
    media_type = part.media_type
    if found is not None:
        media_type = found[1] or "text/plain"  # RFC 2397
        source = {"type": "data", "value": part.url[found.end() :]}
    if media_type:
        source["mimeType"] = media_type
    kind = part.type
    if kind != "file":
        return {"type": kind, "source": source}
    is_video = (media_type or "").startswith("video/")
    return {"type": "video" if is_video else "document", "source": source}
