"""The fields of a request that its response repeats, which the record of its run keeps."""

from typing import Final

from pydantic import JsonValue

from passback.core.changes import RunRecord
from passback.core.messages import JsonObject
from passback.wire.responses.posted import CreateResponse

_RESPONSE: Final = "response"
_KEY: Final = "idempotencyKey"


def functions_of(post: CreateResponse, /) -> list[JsonValue]:
    """Return the functions among the tools of a request. Tools of other kinds are left out."""
    return [each for each in post.tools or () if each.get("type", "function") == "function"]


def note_of(
    post: CreateResponse, model: str, conversation: str | None, created: int, /
) -> JsonObject:
    """Return what a response repeats of its request, with its time and its model's name."""
    text = post.text.format if post.text else None
    form: dict[str, JsonValue] = {"type": "text"}
    if text is not None and text.type != "text":
        form = text.model_dump(exclude_none=text.type == "json_object", by_alias=True)
    verbosity = post.text.verbosity if post.text else None
    choice = post.tool_choice or "auto"
    note: dict[str, JsonValue] = {
        "created_at": created,
        "model": model,
        "previous_response_id": post.previous_response_id,
        "instructions": post.instructions,
        "tools": [_tool_view(each) for each in functions_of(post)],
        "tool_choice": choice if isinstance(choice, str) else choice.model_dump(),
        "truncation": post.truncation or "disabled",
        "parallel_tool_calls": post.parallel_tool_calls is not False,
        "text": {"format": form, **({"verbosity": verbosity} if verbosity else {})},
        "top_p": 1.0 if post.top_p is None else post.top_p,
        "presence_penalty": post.presence_penalty or 0.0,
        "frequency_penalty": post.frequency_penalty or 0.0,
        "top_logprobs": post.top_logprobs or 0,
        "temperature": 1.0 if post.temperature is None else post.temperature,
        "reasoning": post.reasoning.model_dump() if post.reasoning else None,
        "max_output_tokens": post.max_output_tokens,
        "max_tool_calls": post.max_tool_calls,
        "store": True,
        "background": bool(post.background),
        "service_tier": post.service_tier or "default",
        "metadata": dict(post.metadata or {}),
        "safety_identifier": post.safety_identifier,
        "prompt_cache_key": post.prompt_cache_key,
    }
    if conversation is not None:
        note["conversation"] = {"id": conversation}
    return note


def keep_note(note: JsonObject, key: str | None, /) -> JsonObject:
    """Return what the record of a run keeps: the note, and the key by which a repeat is known."""
    return {_RESPONSE: dict(note), **({} if key is None else {_KEY: key})}


def key_of_run(record: RunRecord, /) -> str | None:
    """Return the idempotency key of the request that began a run."""
    key = (record.note or {}).get(_KEY)
    return key if isinstance(key, str) else None


def note_of_run(record: RunRecord, /) -> JsonObject:
    """Return what the record of a run keeps of its request, also of one of another protocol."""
    note = (record.note or {}).get(_RESPONSE)
    if isinstance(note, dict):
        return note
    return note_of(CreateResponse.model_validate({}), record.model, None, record.began // 1000)


def _tool_view(declared: JsonValue) -> JsonValue:
    """Return a function as a response repeats it, with all of its keys."""
    known = declared if isinstance(declared, dict) else {}
    nested = known.get("function")  # the form of chat completions
    known = nested if isinstance(nested, dict) else known
    wanted = ("name", "description", "parameters", "strict")
    return {"type": "function", **{name: known.get(name) for name in wanted}}
