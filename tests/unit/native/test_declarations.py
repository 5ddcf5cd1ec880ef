"""Tool declarations: checked against the metaschema, bounded, without fetching or patterns."""

import json
from collections.abc import Mapping

import pytest
from pydantic import JsonValue

from passback.core.errors import InvalidTool, ToolNameClash
from passback.core.messages import ConversationId, ConversationKey, OwnerId, ToolSpec
from passback.core.questions import ASK_USER
from passback.http.wires import RequestLimits
from passback.native.declarations import parse_tools

pytestmark = pytest.mark.anyio

KEY = ConversationKey(OwnerId("owner"), ConversationId("conversation"))
COLOR: dict[str, JsonValue] = {
    "type": "object",
    "properties": {"color": {"type": "string", "enum": ["blue", "green"]}},
    "required": ["color"],
}
DOUBLING: dict[str, JsonValue] = {
    "$defs": {
        **{
            f"d{step}": {
                "allOf": [{"$ref": f"#/$defs/d{step + 1}"}, {"$ref": f"#/$defs/d{step + 1}"}]
            }
            for step in range(14)
        },
        "d14": True,
    }
}
CHAIN: dict[str, JsonValue] = {
    "$defs": {**{f"d{step}": {"$ref": f"#/$defs/d{step + 1}"} for step in range(64)}, "d64": {}}
}
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


async def _parse(*declared: JsonValue) -> tuple[ToolSpec, ...]:
    return await parse_tools(declared, RequestLimits(), KEY)


async def _schema(parameters: JsonValue) -> Mapping[str, JsonValue]:
    [spec] = await _parse({"name": "t", "parameters": parameters})
    return spec.parameters


async def test_a_declaration_is_read() -> None:
    declared: JsonValue = {"name": "set-Color_2", "description": "Sets it.", "parameters": COLOR}
    assert await _parse(declared) == (ToolSpec("set-Color_2", "Sets it.", COLOR),)


@pytest.mark.parametrize("more", [{"type": "function"}, {}, {"name": None, "strict": True}])
async def test_a_declaration_may_stand_in_a_function(more: dict[str, JsonValue]) -> None:
    declared: JsonValue = {"name": "paint", "description": "Paints.", "parameters": COLOR}
    plain: JsonValue = {"type": "function", "function": None, "name": "ask_user"}
    spec = ToolSpec("paint", "Paints.", COLOR)
    assert await _parse({**more, "function": declared}, plain) == (spec, ASK_USER)


@pytest.mark.parametrize(
    ("title", "read"), [(None, ""), ("", ""), (" Paint it ", "Paint it"), ("é" * 200, "é" * 200)]
)
async def test_a_tool_may_have_a_title(title: JsonValue, read: str) -> None:
    plain: JsonValue = {"name": "a", "title": title, "parameters": COLOR}
    wrapped: JsonValue = {"function": {"name": "b", "title": title, "parameters": COLOR}}
    assert await _parse(plain, wrapped) == (
        ToolSpec("a", "", COLOR, title=read),
        ToolSpec("b", "", COLOR, title=read),
    )


@pytest.mark.promise("P12")
@pytest.mark.parametrize("title", ["t" * 201, 1, ["Paint"], {"a": 1}, True])
async def test_a_title_that_is_no_short_text_is_refused(title: JsonValue) -> None:
    with pytest.raises(InvalidTool) as refused:
        await _parse({"name": "paint", "title": title})
    reason = "its title is not a text of 200 characters at most"
    assert refused.value.message == f"tool 'paint': {reason}"
    assert refused.value.details == {"tool": "paint", "reason": reason}


MIXED_FORMS: list[tuple[dict[str, JsonValue], str]] = [
    ({"function": "paint"}, "tools[1].function is not an object with the tool's name"),
    ({"function": {}}, "tools[1].function has no name of 1 to 64 letters, digits, '_' or '-'"),
    (
        {"function": {"name": "paint"}, "name": "paint", "parameters": {}},
        "tools[1] has a function and name and parameters beside it: put them into the function",
    ),
    (
        {"function": {"name": "paint"}, "title": "Paint"},
        "tools[1] has a function and title beside it: put them into the function",
    ),
    (
        {"type": "custom", "function": {"name": "paint"}},
        "tools[1] has a function, so its type has to be 'function'",
    ),
]


@pytest.mark.promise("P12")
@pytest.mark.parametrize(("declared", "message"), MIXED_FORMS)
async def test_a_mixed_form_is_refused_in_place(
    declared: dict[str, JsonValue], message: str
) -> None:
    with pytest.raises(InvalidTool) as refused:
        await _parse({"name": "first"}, declared)
    assert refused.value.message == message


async def test_no_declarations_are_no_tools() -> None:
    assert await _parse() == ()


@pytest.mark.parametrize("more", [{}, {"parameters": None}, {"description": "Mine."}])
async def test_ask_user_without_parameters_is_the_built_in_tool(more: dict[str, JsonValue]) -> None:
    assert await _parse({"name": "ask_user", **more}) == (ASK_USER,)


async def test_ask_user_with_parameters_is_the_clients_own() -> None:
    own: JsonValue = {"name": "ask_user", "parameters": COLOR}
    assert await _parse(own) == (ToolSpec("ask_user", "", COLOR),)
    assert (await _parse({"name": "Ask_User"}))[0] != ASK_USER


async def test_a_schema_may_be_a_json_text() -> None:
    assert await _schema(json.dumps(COLOR)) == COLOR


@pytest.mark.parametrize("declared", [{"name": "t"}, {"name": "t", "parameters": None}])
async def test_a_tool_may_have_no_parameters(declared: JsonValue) -> None:
    assert await _parse(declared) == (ToolSpec("t", "", {"type": "object", "properties": {}}),)


GOOD_SCHEMAS: dict[str, dict[str, JsonValue]] = {
    "of draft 7": {"$schema": DRAFT_7, "type": "object", "definitions": {"a": {}}},
    "of 2019-09": {"$schema": "https://json-schema.org/draft/2019-09/schema", "type": "object"},
    "of 2020-12": {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"},
    "with a reference": {
        "type": "object",
        "$defs": {"a/b~": {"type": "string"}},
        "properties": {"x": {"$ref": "#/$defs/a~1b~0"}},
    },
    "with a percent-encoded reference": {
        "type": "object",
        "$defs": {"é": True},
        "properties": {"x": {"$ref": "#/$defs/%C3%A9"}},
    },
    "with a reference into a list": {
        "type": "object",
        "allOf": [{"title": "a"}],
        "properties": {"x": {"$ref": "#/allOf/0"}},
    },
    "with an anchor": {
        "type": "object",
        "$defs": {"a": {"$anchor": "here"}},
        "properties": {"x": {"$ref": "#here"}},
    },
    "that refers to itself": {"type": "object", "properties": {"child": {"$ref": "#"}}},
    "with a property named $ref": {"type": "object", "properties": {"$ref": {"type": "string"}}},
    "with a hostile pattern": {
        "type": "object",
        "properties": {"x": {"type": "string", "pattern": "^(a+)+$"}},
    },
    "with a pattern that is none": {
        "type": "object",
        "properties": {"x": {"type": "string", "pattern": "(("}},
    },
}


@pytest.mark.parametrize("schema", GOOD_SCHEMAS.values(), ids=GOOD_SCHEMAS.keys())
async def test_a_valid_schema_is_kept_as_it_is(schema: dict[str, JsonValue]) -> None:
    assert await _schema(schema) == schema


async def test_a_schema_without_type_is_one_of_an_object() -> None:
    assert await _schema({"properties": {}}) == {"type": "object", "properties": {}}


BAD_SCHEMAS: dict[str, tuple[JsonValue, str]] = {
    "no JSON": ("{", "cannot be read"),
    "an empty text": ("", "cannot be read"),
    "NaN": ('{"minimum": NaN}', "cannot be read"),
    "too deep": ('{"not":' * 70 + "{}" + "}" * 70, "cannot be read"),
    "a list": ([], "not an object"),
    "a list as text": ("[]", "not an object"),
    "a number": (1, "not an object"),
    "true": (True, "not an object"),
    "of another type": ({"type": "string"}, "not of type 'object'"),
    "of several types": ({"type": ["object", "null"]}, "not of type 'object'"),
    "an unknown type": ({"properties": {"x": {"type": "colour"}}}, "not a valid JSON Schema"),
    "properties as a list": ({"properties": []}, "not a valid JSON Schema"),
    "required as a text": ({"required": "x"}, "not a valid JSON Schema"),
    "a dialect of its own": ({"$schema": "http://evil.example/schema"}, "$schema is none"),
    "a dialect that is no text": ({"$schema": 1}, "$schema is none"),
    "a remote reference": (
        {"properties": {"x": {"$ref": "http://127.0.0.1/"}}},
        "another document",
    ),
    "a file": ({"properties": {"x": {"$ref": "file:///etc/passwd"}}}, "another document"),
    "a relative reference": ({"properties": {"x": {"$ref": "other.json#/a"}}}, "another document"),
    "a remote dynamic reference": ({"$dynamicRef": "http://127.0.0.1/"}, "another document"),
    "an id below the top": ({"$defs": {"a": {"$id": "http://x/"}}}, "below its top"),
    "a dialect below the top": ({"$defs": {"a": {"$schema": DRAFT_7}}}, "below its top"),
    "an anchor of draft 7": (
        {"$schema": DRAFT_7, "$ref": "#a", "definitions": {"a": {"$anchor": "a"}}},
        "leads nowhere",
    ),
    "itself": ({"$ref": "#"}, "applies too many"),
    "itself, or not": ({"not": {"anyOf": [{"$ref": "#"}]}}, "applies too many"),
    "itself by a dynamic reference": (
        {"$dynamicAnchor": "n", "if": {"$dynamicRef": "#n"}},
        "applies too many",
    ),
    "two that refer to each other": (
        {
            "$defs": {
                "a": {"dependentSchemas": {"x": {"$ref": "#/$defs/b"}}},
                "b": {"then": {"$ref": "#/$defs/a"}},
            }
        },
        "applies too many",
    ),
    "doubled again and again": (DOUBLING, "applies too many"),
    "a long chain": (CHAIN, "applies too many"),
    "a reference to nothing": ({"$ref": "#/$defs/a"}, "leads nowhere"),
    "a reference to no schema": ({"required": ["a"], "$ref": "#/required/0"}, "leads nowhere"),
    "a reference beyond a list": ({"allOf": [{}], "$ref": "#/allOf/7"}, "leads nowhere"),
    "a reference into a text": ({"title": "a", "$ref": "#/title/x"}, "leads nowhere"),
    "an unknown anchor": ({"$ref": "#nowhere"}, "leads nowhere"),
    "too large": ({"description": "x" * 65_536}, "larger than 65536 bytes"),
    "too large in bytes": ({"type": "object", "title": "é" * 40_000}, "larger than 65536 bytes"),
    "too many parts": ({"allOf": [{}] * 1_000}, "more than 1000 parts"),
}


@pytest.mark.promise("P11", "P12")
@pytest.mark.parametrize(("schema", "reason"), BAD_SCHEMAS.values(), ids=BAD_SCHEMAS.keys())
async def test_a_bad_schema_is_refused_with_the_tools_name(schema: JsonValue, reason: str) -> None:
    with pytest.raises(InvalidTool) as caught:
        await _parse({"name": "first"}, {"name": "paint", "parameters": schema})
    assert caught.value.details["tool"] == "paint"
    assert reason in str(caught.value.details["reason"])
    assert "paint" in caught.value.message
    assert len(caught.value.message) < 500


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    "declared",
    [
        None,
        "t",
        [],
        {},
        {"name": None},
        {"name": 1},
        {"name": ""},
        {"name": "a b"},
        {"name": "a.b"},
        {"name": "é"},
        {"name": "a\n"},
        {"name": "x" * 65},
        {"name": "t", "description": 1},
        {"name": "t", "description": "x" * 16_385},
    ],
)
async def test_a_malformed_declaration_is_refused(declared: JsonValue) -> None:
    with pytest.raises(InvalidTool):
        await _parse(declared)


@pytest.mark.promise("P14")
@pytest.mark.parametrize(("first", "second"), [("paint", "paint"), ("paint", "PAINT")])
async def test_two_tools_whose_names_differ_only_in_case_are_refused(
    first: str, second: str
) -> None:
    with pytest.raises(ToolNameClash):
        await _parse({"name": first}, {"name": second})


@pytest.mark.promise("P11")
async def test_the_number_of_tools_is_limited() -> None:
    most: list[JsonValue] = [{"name": f"t{number}"} for number in range(128)]
    assert len(await _parse(*most)) == 128
    with pytest.raises(InvalidTool, match="more than 128"):
        await _parse(*most, {"name": "one-more"})


@pytest.mark.promise("P11")
async def test_the_schemas_of_all_tools_together_are_limited() -> None:
    large: JsonValue = {
        "type": "object",
        "enum": [True] * 997,
    }  # and the schema and the list itself
    tools: list[JsonValue] = [{"name": f"t{number}", "parameters": large} for number in range(2)]
    assert len(await _parse(*tools, {"name": "more", "parameters": {}})) == 3
    with pytest.raises(InvalidTool, match="together have more than 2000 parts"):
        await _parse(*tools, {"name": "more", "parameters": {"enum": [True]}})
