"""A person's answer to an interrupt is read in all its forms; what is none of them says what is expected."""

import json
from typing import Any

import pytest
from pydantic import JsonValue

from passback.core.errors import InvalidRequest
from passback.core.messages import ApprovalMessage, CallId
from passback.native.submissions import read_approval

CALL = CallId("call_1")


def read(payload: JsonValue) -> tuple[bool, str, bool]:
    message = read_approval(CALL, payload)
    assert message == ApprovalMessage(
        message.id, CALL, message.approved, message.reason, message.always
    )
    return message.approved, message.reason, message.always


YES, NO = (True, "", False), (False, "", False)
OBJECTS: list[tuple[JsonValue, tuple[bool, str, bool]]] = [
    ({"approved": True}, YES),
    ({"approved": False}, NO),
    ({"approved": False, "reason": " Not now.\n"}, (False, "Not now.", False)),
    ({"approved": False, "reason": "x" * 10_000}, (False, "x" * 10_000, False)),
    ({"approved": True, "always": True}, (True, "", True)),
    ({"approved": False, "always": True, "reason": "no"}, (False, "no", True)),
    ({"approved": True, "reason": " fine "}, (True, "fine", False)),
    ({"approved": True, "somethingElse": [1]}, YES),
    (True, YES),
    (False, NO),
]
WORDS = {
    True: ["yes", "true", "approve", "approved", "allow", " YES\n", "Allow"],
    False: ["no", "false", "deny", "denied", "reject", "rejected", "Denied "],
}


@pytest.mark.parametrize(("payload", "expected"), OBJECTS)
def test_an_object_or_a_truth_value_is_read_also_as_json_text(
    payload: JsonValue, expected: tuple[bool, str, bool]
) -> None:
    assert read(payload) == expected
    assert read(json.dumps(payload)) == expected


@pytest.mark.parametrize(
    ("word", "approved"), [(word, approved) for approved in WORDS for word in WORDS[approved]]
)
def test_a_word_is_read(word: str, approved: bool) -> None:
    assert read(word) == (approved, "", False)


NONE: list[Any] = [
    *[None, 0, 1, 1.5, [], [True], {}, {"approved": None}, {"approved": "yes"}, {"approved": 1}],
    *["", " ", "perhaps", "yes please", "{", "null", "1", "[true]", '"yes"', '{"approved": NaN}'],
    {"approved": True, "always": "yes"},
    {"approved": True, "always": 1},
    {"approved": False, "reason": 5},
    {"approved": False, "reason": None},
    {"approved": False, "reason": "x" * 10_001},
    {"answer": True},
    "[" * 100_000,
    '{"approved": false, "reason": "\\ud800"}',
]


@pytest.mark.promise("P12")
@pytest.mark.parametrize("payload", NONE, ids=lambda payload: repr(payload)[:30])
def test_anything_else_is_refused_with_what_is_expected(payload: JsonValue) -> None:
    with pytest.raises(InvalidRequest, match='"approved": true or false') as raised:
        read_approval(CALL, payload)
    assert len(raised.value.message) < 200


def test_each_answer_has_an_id_of_its_own() -> None:
    assert read_approval(CALL, True).id != read_approval(CALL, True).id
