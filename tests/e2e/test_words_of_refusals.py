"""What a person reads whose post is refused: what is wrong, where, and what may be done."""

import json

import pytest
from tests.support.wire import PATH, Client, Json, check_refusal, client_tool, user

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P12")]

JSON = {"content-type": "application/json"}
DATA_BYTES = 262_144

REFUSALS: dict[str, tuple[Json, int, str, str]] = {
    "a command that there is not": (
        {"messages": [user("/nosuch thing")]},
        422,
        "unknown_command",
        "there is no command /nosuch; there are /clear, /compact, /help. A text that begins with a space is none",
    ),
    "structured data that is too large": (
        {"structuredData": "x" * (DATA_BYTES - 1)},
        413,
        "data_too_large",
        f"structuredData is larger than {DATA_BYTES} bytes (data_bytes in PASSBACK_LIMITS)",
    ),
    "a table whose lines have other fields": (
        {"structuredData": {"orders": {"mediaType": "text/csv", "text": "a,b\n1,2\n3\n"}}},
        422,
        "invalid_request",
        "structuredData.orders is a table that cannot be read: line 3 has 1 field, and the header 2",
    ),
    "an output schema that is no JSON": (
        {"outputSchema": '{"type": object}'},
        422,
        "invalid_output_schema",
        "outputSchema is refused: its schema cannot be read: the text is not valid JSON in UTF-8 at line 1 column 10",
    ),
    "an output schema that is no schema": (
        {"outputSchema": {"properties": {"a": {"type": "thing"}}}},
        422,
        "invalid_output_schema",
        "outputSchema is refused: its schema is not a valid JSON Schema at $.properties.a.type",
    ),
    "an output schema of a list": (
        {"outputSchema": {"type": "array"}},
        422,
        "invalid_output_schema",
        "outputSchema is refused: its schema is not of type 'object'",
    ),
    "two tools of one name": (
        {"tools": [client_tool("paint"), client_tool("Paint")]},
        422,
        "tool_name_clash",
        "two tools are named 'Paint', or look alike",
    ),
}


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS)
async def test_a_refusal_names_what_is_wrong(
    waiting: tuple[Client, str], case: tuple[Json, int, str, str]
) -> None:
    client, conversation = waiting
    changed, status, code, words = case
    body = {"conversationId": conversation, "messages": [user("hi")], **changed}
    answer = await client.http.post(PATH, json=body)
    check_refusal(answer, status, code)
    assert answer.json()["message"] == words


@pytest.mark.parametrize(
    ("data", "offset"), [("NaN", 0), ("{a: 1}", 1), ("{'a': 1}", 1), ('{"a": [1, 2}', 11)]
)
async def test_structured_data_that_is_no_json_is_told_with_its_place(
    waiting: tuple[Client, str], data: str, offset: int
) -> None:
    client, _ = waiting
    before = f'{{"messages": {json.dumps([user("hi")])}, "structuredData": '
    answer = await client.http.post(PATH, content=f"{before}{data}}}", headers=JSON)
    check_refusal(answer, 400, "bad_request")
    place = f"line 1 column {len(before) + offset + 1}"
    assert answer.json()["message"] == f"the text is not valid JSON in UTF-8 at {place}"
