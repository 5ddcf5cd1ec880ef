"""The shared state of a conversation: a JSON object that server tools write and clients see."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from pydantic import JsonValue
from typing_extensions import override

from passback.core.messages import JsonObject, ToolResult
from passback.core.text import find_prototype_key
from passback.core.values import value

STATE_BYTES: Final = 64 * 1024  # of the whole state, as JSON
STATE_DEPTH: Final = 32  # of nested lists and objects
KEY_CHARACTERS: Final = 200
RESERVED_KEYS: Final = frozenset({"plan"})  # clients of AG-UI have the agent's plan there


class StateError(ValueError):
    """A write that the shared state cannot take. The text says why, for model and author."""


@value
class StateChange:
    """A change of the shared state: keys with their new values, and keys that are gone."""

    values: JsonObject
    removed: tuple[str, ...] = ()


def change_state(state: JsonObject, change: StateChange, /) -> JsonObject:
    """Return the state after a change. Raise StateError if it would be too large."""
    changed = {name: each for name, each in state.items() if name not in change.removed}
    changed.update(change.values)
    size = len(json.dumps(changed, ensure_ascii=False, separators=(",", ":")).encode())
    if size > STATE_BYTES:
        raise StateError(
            f"the shared state would have {size} bytes, of at most {STATE_BYTES}; nothing of it "
            "was changed"
        )
    return changed


def difference(before: JsonObject, after: JsonObject, /) -> StateChange | None:
    """Return the change from one state to another; None if they are equal."""
    if before == after:
        return None
    values = {
        name: each for name, each in after.items() if name not in before or before[name] != each
    }
    return StateChange(values, tuple(name for name in before if name not in after))


def check_state(state: JsonObject, /) -> None:
    """Raise StateError if the server cannot have written this state.

    It may have keys that `CallState` refuses because of JavaScript: older servers took them.
    """
    for name, each in state.items():
        _check_key(name)
        _checked_value(name, each)
    change_state({}, StateChange(state))


def _check_key(name: object) -> str:
    if not isinstance(name, str) or not 1 <= len(name) <= KEY_CHARACTERS:
        raise StateError(f"a key of the shared state is a text of 1 to {KEY_CHARACTERS} characters")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise StateError("a key of the shared state is not Unicode text") from None
    if name in RESERVED_KEYS:
        raise StateError(f"the key {name!r} of the shared state is the server's own")
    return name


def _refuse_prototype_key(name: str, given: JsonValue) -> None:
    """Raise StateError for keys that clients in JavaScript refuse, or do not apply."""
    if (key := find_prototype_key({name: given})) is None:
        return
    place = "the shared state" if key == name else f"the value of {name!r} in the shared state"
    raise StateError(
        f"{place} cannot have the key {key!r}, which JavaScript clients refuse: "
        "give it another name"
    )


def _checked_value(name: str, given: object) -> JsonValue:
    """Return a copy of a value. Raise StateError if it is not JSON, or nested too deep."""
    try:
        text = json.dumps(given, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise StateError(
            f"the value of {name!r} in the shared state is not JSON: {error}"
        ) from None
    copy: JsonValue = json.loads(text)
    if _depth_of(copy) > STATE_DEPTH:
        raise StateError(
            f"the value of {name!r} in the shared state is nested deeper than {STATE_DEPTH}"
        )
    return copy


def _depth_of(given: JsonValue) -> int:
    """Return how many lists and objects are around the innermost one, itself included."""
    depth, level = 0, [given]
    while level := [each for each in level if isinstance(each, dict | list)]:
        depth += 1
        level = [
            inner for each in level for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return depth


class CallState(Mapping[str, JsonValue]):
    """The shared state as one call of a tool has it: what is committed, and its own writes.

    Its writes count with its result: if the tool fails, or is stopped, there are none. Values that
    are read are copies. Of two calls at once that write the same key, that counts which ends last.
    """

    __slots__ = ("_closed", "_read", "_removed", "_values")

    def __init__(self, read: Callable[[], JsonObject] = dict, /) -> None:
        self._read = read
        self._values: dict[str, JsonValue] = {}
        self._removed: set[str] = set()
        self._closed = False

    @override
    def __getitem__(self, name: str, /) -> JsonValue:
        found: JsonValue = json.loads(json.dumps(self._now()[name]))
        return found

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._now())

    @override
    def __len__(self) -> int:
        return len(self._now())

    def set(self, name: str, given: object, /) -> None:
        """Set the value of a key. Raises as `update`."""
        self.update({name: given})

    def update(self, values: Mapping[str, object], /) -> None:
        """Set several keys, or none of them.

        Raises:
            StateError: a key or value cannot be stored, the state would be too large, or the call
                has ended. As a tool's error, the model is shown its text.
        """
        checked = {_check_key(name): _checked_value(name, each) for name, each in values.items()}
        for name, each in checked.items():
            _refuse_prototype_key(name, each)
        self._check_open()
        change_state(self._now(), StateChange(checked))
        self._values.update(checked)
        self._removed.difference_update(checked)

    def remove(self, name: str, /) -> None:
        """Remove a key, if it is there. Raises StateError if the call has ended."""
        self._check_open()
        self._values.pop(name, None)
        if name in self._read():
            self._removed.add(name)

    def close(self) -> StateChange | None:
        """End the writes; return them, None if there are none. For the engine."""
        self._closed = True
        if not self._values and not self._removed:
            return None
        return StateChange(dict(self._values), tuple(sorted(self._removed)))

    def _now(self) -> JsonObject:
        known = {**self._read(), **self._values}
        return {name: each for name, each in known.items() if name not in self._removed}

    def _check_open(self) -> None:
        if self._closed:
            raise StateError("the call has ended: the shared state takes no more of its writes")


class RunState:
    """The shared state of a run, which its sub-agents share.

    Attributes:
        current: with the writes of all calls that have ended.
    """

    __slots__ = ("current",)

    def __init__(self, current: JsonObject) -> None:
        self.current = current

    def read(self) -> JsonObject:
        return self.current

    def settle(
        self, call: CallState | None, result: ToolResult, /
    ) -> tuple[ToolResult, StateChange | None]:
        """Take the writes of a call that has ended; return its result, and the change it made.

        A call that failed has made none. One whose writes do not fit beside those of others fails.
        """
        change = None if call is None else call.close()
        if change is None or result.is_error:
            return result, None
        try:
            self.current = change_state(self.current, change)
        except StateError as error:
            return ToolResult(str(error), is_error=True), None
        return result, change
