"""Rules by which OpenAI's Responses API refuses requests that it is not to keep."""

import json
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
CALL_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
PARTS = {
    "input_text": {"type", "text"},
    "input_image": {"type", "image_url", "detail"},
    "input_file": {"type", "filename", "file_data", "file_url"},
}
FIELDS = {
    "message": {"type", "role", "content", "phase"},
    "function_call": {"type", "call_id", "name", "arguments"},
    "function_call_output": {"type", "call_id", "output"},
    "reasoning": {"type", "id", "summary", "encrypted_content"},
}
NOT_AT_THE_TOP = {"oneOf", "anyOf", "allOf", "enum", "not"}
CHOICES = {"none", "auto", "required"}


def breaches_of(body: Json) -> list[str]:
    """Return what the service would refuse, whatever it said before."""
    items: list[Json] = body["input"]
    return [
        *_whole(body),
        *_tools(body),
        *_choice(body),
        *_output(body),
        *(f"item {at}: {why}" for at, each in enumerate(items) for why in _item(each)),
        *_pairs(items),
        *_reasoning(items),
    ]


def _whole(body: Json) -> Iterable[str]:
    if not body.get("model") or not body["input"]:
        yield "the model or the input is missing"
    if body.get("store") is not False or body.get("stream") is not True:
        yield "it is kept, or not streamed"
    if _is_blank(body.get("instructions", "none")):
        yield "the instructions say nothing"
    if (limit := body.get("max_output_tokens")) is not None and limit < 16:
        yield f"at most {limit} tokens"
    if unknown := body.keys() & {"stop", "seed", "max_tokens", "messages", "frequency_penalty"}:
        yield f"unknown parameters: {sorted(unknown)}"


def _tools(body: Json) -> Iterable[str]:
    tools: list[Json] = body.get("tools", [])
    names = [tool["name"] for tool in tools]
    if len(set(names)) < len(names) or not all(map(NAME.fullmatch, names)):
        yield f"tools are not properly named: {names}"
    for tool in tools:
        schema = tool["parameters"]
        if tool["type"] != "function" or tool.get("strict") is not False:
            yield f"{tool['name']} is no function, or a strict one"
        if schema.get("type") != "object" or "properties" not in schema:
            yield f"the schema of {tool['name']} is not one of an object"
        if schema.keys() & NOT_AT_THE_TOP:
            yield f"the schema of {tool['name']} is refused at its top"


def _choice(body: Json) -> Iterable[str]:
    names = [tool["name"] for tool in body.get("tools", [])]
    choice = body.get("tool_choice", "auto")
    if isinstance(choice, dict):
        if choice != {"type": "function", "name": choice.get("name")}:
            yield f"no choice of a tool: {choice}"
        choice = "required" if choice.get("name") in names else "unknown"
    if choice not in CHOICES or (choice == "required" and not names):
        yield f"a choice of a tool that is not there: {body['tool_choice']}"


def _output(body: Json) -> Iterable[str]:
    asked: Json | None = body.get("text", {}).get("format")
    if asked is None:
        return
    named = isinstance(asked.get("schema"), dict) and NAME.fullmatch(asked.get("name", ""))
    if asked["type"] == "json_schema" and not named:
        yield f"the output has no schema with a name: {asked}"


# ---------------------------------------------------------------- items
def _item(item: Json) -> Iterable[str]:
    kind = item["type"]
    if unknown := item.keys() - FIELDS.get(kind, item.keys()):
        yield f"a {kind} with {sorted(unknown)}"
    match kind:
        case "message":
            yield from _message(item)
        case "function_call":
            if not NAME.fullmatch(item["name"]) or not _is_object(item["arguments"]):
                yield f"a call that makes no sense: {item}"
        case "function_call_output":
            yield from _content(item["output"], may_be_empty=True)
        case "reasoning":
            if not item.get("encrypted_content") or not isinstance(item.get("summary"), list):
                yield f"reasoning that nobody kept: {item}"
        case _:
            yield f"has the type {kind}"


def _message(item: Json) -> Iterable[str]:
    role, content = item["role"], item["content"]
    if role not in {"user", "assistant", "system"}:
        yield f"has the role {role}"
    if "phase" in item and (role != "assistant" or not item["phase"]):
        yield "has a phase that it cannot have"
    if role != "user" and not isinstance(content, str):
        yield f"{role} says parts"
    yield from _content(content, may_be_empty=role == "user")


def _content(content: Any, *, may_be_empty: bool) -> Iterable[str]:
    if isinstance(content, str):
        if not may_be_empty and _is_blank(content):
            yield "says nothing"
        return
    parts: list[Json] = content
    for part in parts:
        if part.keys() - PARTS.get(part["type"], set()):
            yield f"has a part that is none: {part}"
        if part["type"] == "input_file" and ("file_url" in part) == ("file_data" in part):
            yield f"has a file that is not there: {part}"


def _is_blank(text: object) -> bool:
    return not (isinstance(text, str) and text.strip())


def _is_object(text: object) -> bool:
    try:
        return isinstance(text, str) and isinstance(json.loads(text), dict)
    except ValueError:
        return False


# ---------------------------------------------------------------- what belongs together
def _pairs(items: Sequence[Json]) -> Iterable[str]:
    waiting: set[str] = set()
    used: set[str] = set()
    for at, item in enumerate(items):
        call_id: str = item.get("call_id", "")
        if item["type"] == "function_call":
            if call_id in used or not CALL_ID.fullmatch(call_id):
                yield f"item {at}: an id that cannot be used: {call_id!r}"
            used.add(call_id)
            waiting.add(call_id)
        elif item["type"] == "function_call_output":
            if call_id not in waiting:
                yield f"item {at}: answers no open call"
            waiting.discard(call_id)
        elif waiting and item.get("role") in {"user", "system"}:
            yield f"item {at}: comes before the outputs of {sorted(waiting)}"
    if waiting:
        yield f"no outputs of {sorted(waiting)}"


def _reasoning(items: Sequence[Json]) -> Iterable[str]:
    """Each item of reasoning is followed by what it led to."""
    for at, (item, after) in enumerate(pairwise([*items, {"type": "end"}])):
        answered = after["type"] in {"reasoning", "function_call"} or after.get("role") == (
            "assistant"
        )
        if item["type"] == "reasoning" and not answered:
            yield f"item {at}: reasoning without the item that has to follow it"
