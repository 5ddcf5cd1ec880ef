"""Rules by which Anthropic's Messages API refuses requests."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

THOUGHTS = {"thinking", "redacted_thinking"}
SPOKEN = {
    "user": {"text", "image", "document", "tool_result"},
    "assistant": {"text", "tool_use", *THOUGHTS},
}
NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
ID = re.compile(r"[A-Za-z0-9_-]+")
MOST_BREAKPOINTS = 4


def breaches_of(body: Json) -> list[str]:
    """Return what the service would refuse, whatever it said before."""
    messages: list[Json] = body["messages"]
    return [
        *_whole(body),
        *_tools(body.get("tools", [])),
        *_turns(messages),
        *(f"message {at}: {why}" for at, each in enumerate(messages) for why in _message(each)),
        *_pairs(messages),
        *_cached(body),
        *_manual_thinking(body),
        *_output(body),
    ]


def _whole(body: Json) -> Iterable[str]:
    if not (isinstance(body.get("max_tokens"), int) and body["max_tokens"] > 0):
        yield "max_tokens is missing"
    if not body.get("model"):
        yield "the model is missing"
    if any(_is_blank(block.get("text")) for block in body.get("system", [])):
        yield "the system says nothing"


def _tools(tools: Sequence[Json]) -> Iterable[str]:
    names = [tool["name"] for tool in tools]
    if len(set(names)) < len(names) or not all(map(NAME.fullmatch, names)):
        yield f"tools are not properly named: {names}"
    for tool in tools:
        schema = tool["input_schema"]
        if schema.get("type") != "object" or schema.keys() & {"oneOf", "anyOf", "allOf"}:
            yield f"the schema of {tool['name']} is not one of an object"


def _turns(messages: Sequence[Json]) -> Iterable[str]:
    roles = [message["role"] for message in messages]
    if roles != [("user", "assistant")[at % 2] for at in range(len(roles))]:
        yield f"user and assistant do not take turns: {roles}"
    if not roles or roles[-1] != "user":
        yield "the last message is not the user's"


def _message(message: Json) -> Iterable[str]:
    blocks: list[Json] = message["content"]
    if not blocks:
        yield "says nothing"
    for block in blocks:
        if block["type"] not in SPOKEN[message["role"]]:
            yield f"has a {block['type']}"
        yield from _block(block)
    kinds = [block["type"] for block in blocks]
    if kinds and kinds[-1] in THOUGHTS:
        yield "ends in a thought"
    if kinds != sorted(kinds, key=lambda kind: kind != "tool_result") and "tool_result" in kinds:
        yield "has results behind something else"


def _block(block: Json) -> Iterable[str]:
    match block["type"]:
        case "text" if _is_blank(block["text"]):
            yield "has a blank text"
        case "tool_use" if not isinstance(block["input"], dict) or not NAME.fullmatch(
            block["name"]
        ):
            yield f"has a call that makes no sense: {block}"
        case "tool_result":
            yield from _result(block)
        case _:
            pass


def _result(block: Json) -> Iterable[str]:
    content = block.get("content")
    inner: list[Json] = content if isinstance(content, list) else []
    if content is not None and not inner and _is_blank(content):
        yield "has a blank result"
    if block.get("is_error") and any(each["type"] != "text" for each in inner):
        yield "has an error that is no text"
    for each in inner:
        yield from _block(each)


def _is_blank(text: object) -> bool:
    return not (isinstance(text, str) and text.strip())


def _pairs(messages: Sequence[Json]) -> Iterable[str]:
    waiting: list[str] = []
    used: set[str] = set()
    for at, message in enumerate(messages):
        answered = [b["tool_use_id"] for b in message["content"] if b["type"] == "tool_result"]
        if sorted(answered) != sorted(waiting):
            yield f"message {at}: answers {answered}, but the calls are {waiting}"
        waiting = [b["id"] for b in message["content"] if b["type"] == "tool_use"]
        if (
            used & {*waiting}
            or len({*waiting}) < len(waiting)
            or not all(map(ID.fullmatch, waiting))
        ):
            yield f"message {at}: has ids that cannot be used: {waiting}"
        used.update(waiting)
    if waiting:
        yield f"the calls {waiting} are not answered"


def _cached(body: Json) -> Iterable[str]:
    marked = [block for block in _blocks(body) if "cache_control" in block]
    if len(marked) > MOST_BREAKPOINTS:
        yield f"{len(marked)} breakpoints of the cache"
    if any(block.get("type") in THOUGHTS for block in marked):
        yield "a thought cannot be cached"


def _blocks(body: Json) -> Iterable[Json]:
    yield from body.get("tools", [])
    yield from body.get("system", [])
    for message in body["messages"]:
        yield from message["content"]


def _manual_thinking(body: Json) -> Iterable[str]:
    thinking: Json = body.get("thinking", {})
    if thinking.get("type") != "enabled":
        return
    if thinking["budget_tokens"] >= body["max_tokens"]:
        yield "more is thought than may be said"
    messages: list[Json] = body["messages"]
    answers = any(block["type"] == "tool_result" for block in messages[-1]["content"])
    if answers and messages[-2]["content"][0]["type"] not in THOUGHTS:
        yield "the calls that are answered were made without a thought"


# ---------------------------------------------------------------- structured output
KEYWORDS = {
    *("type", "properties", "required", "additionalProperties", "items", "minItems", "enum"),
    *("const", "anyOf", "allOf", "$ref", "$defs", "definitions", "default"),
    *("title", "description", "format", "pattern"),
}


def _output(body: Json) -> Iterable[str]:
    asked: Json | None = body.get("output_config", {}).get("format")
    if asked is None:
        return
    if asked.keys() != {"type", "schema"} or asked["type"] != "json_schema":
        yield f"asks for an output of no known kind: {asked}"
        return
    yield from _schema(asked["schema"])
    parts = list(_parts(asked["schema"]))
    optional = sum(
        len({*part.get("properties", ())} - {*part.get("required", ())}) for part in parts
    )
    unions = sum("anyOf" in part or isinstance(part.get("type"), list) for part in parts)
    if optional > 24 or unions > 16:
        yield f"the output schema is too complex: {optional} optional properties, {unions} unions"


def _schema(schema: Json) -> Iterable[str]:
    if unknown := schema.keys() - KEYWORDS:
        yield f"the output schema has {sorted(unknown)}"
    if not schema.keys() & {"type", "enum", "const", "anyOf", "allOf", "$ref"}:
        yield "the output schema is of any type"
    if "object" in _types(schema) and schema.get("additionalProperties") is not False:
        yield "the output schema has an object that is open"
    if "array" in _types(schema) and "items" not in schema:
        yield "the output schema has an array of anything"
    if schema.get("minItems", 0) > 1:
        yield "the output schema has a minItems"
    for each in _below(schema):
        yield from _schema(each)


def _types(schema: Json) -> Sequence[str]:
    given = schema.get("type", [])
    return [given] if isinstance(given, str) else given


def _parts(schema: Json) -> Iterable[Json]:
    yield schema
    for each in _below(schema):
        yield from _parts(each)


def _below(schema: Json) -> Iterable[Json]:
    yield from schema.get("properties", {}).values()
    yield from schema.get("anyOf", [])
    if "items" in schema:
        yield schema["items"]


# ---------------------------------------------------------------- thoughts
def thought_key(block: Mapping[str, Any]) -> str:
    """Return what identifies a thought."""
    return str(block.get("signature") or block.get("data"))


def prefix_of(body: Json, messages: int) -> str:
    """Return the key of the prefix that thoughts of the next message are bound to."""
    kept = {
        "system": body.get("system"),
        "tools": body.get("tools"),
        "messages": body["messages"][:messages],
    }
    return json.dumps(_unmarked(kept), sort_keys=True)


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _unmarked(each) for name, each in value.items() if name != "cache_control"}
    return [_unmarked(each) for each in value] if isinstance(value, list) else value
