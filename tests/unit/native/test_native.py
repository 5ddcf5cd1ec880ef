"""Run events become native events: by vectors that other implementations may read too."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator

from passback.core.changes import load_events
from passback.core.events import Cursor, Rewound, RunEvent
from passback.core.messages import RunId
from passback.native.encoder import _NEEDED_WORD, DONE, NativeEncoder, _RunEvent, _StepEvent
from passback.native.shapes import NATIVE_EVENT

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "vectors" / "send_message.json").read_text(encoding="utf-8")
)
SCHEMA = Draft202012Validator(NATIVE_EVENT.json_schema())


def _encode(vector: dict[str, Any]) -> list[str]:
    encoder = NativeEncoder(frozenset(vector["include"]))
    events = load_events(json.dumps(vector["events"]).encode())
    return [data for event in events for data in _frames(encoder, event)] + list(encoder.end())


def _frames(encoder: NativeEncoder, event: RunEvent) -> list[str]:
    told = encoder.rewind(Cursor(RunId("run_1"), event.to)) if isinstance(event, Rewound) else ()
    return [*told, *encoder.feed(event)]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_events_are_encoded_as_the_vector_says(vector: dict[str, Any]) -> None:
    assert _encode(vector) == vector["data"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_what_is_sent_fits_its_description(vector: dict[str, Any]) -> None:
    *events, done = _encode(vector)
    assert done == DONE
    for event in events:
        SCHEMA.validate(json.loads(event))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_only_text_has_content(vector: dict[str, Any]) -> None:
    for event in map(json.loads, _encode(vector)[:-1]):
        assert ("content" in event) == (event["type"] == "text")


def test_the_vectors_have_every_event_and_every_native_type() -> None:
    fed = {event["type"] for vector in VECTORS for event in vector["events"]}
    assert fed == {kind.__dataclass_fields__["type"].default for kind in get_args(RunEvent)}
    sent = {json.loads(data)["type"] for one in VECTORS for data in one["data"] if data != DONE}
    assert sent == NATIVE_EVENT.json_schema()["discriminator"]["mapping"].keys()


def test_of_every_event_that_has_to_be_asked_for_it_is_known_how() -> None:
    assert _NEEDED_WORD.keys() == {*get_args(_RunEvent), *get_args(_StepEvent)}
