"""Conversations as lines: `user: hi`, `assistant: well -> zone, color`, `zone: UTC`, `wipe? yes`.

A result goes by the name of the tool that was called; so a conversation of a test calls no tool
twice.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from tests.support.wire import Json

_ANSWER = re.compile(r"(?P<who>\w+)\? (?P<word>yes|always|no)(, (?P<reason>.*))?")
_LINE = re.compile(r"(?P<who>\w+)(#(?P<id>[\w-]+))?(?P<error> \(error\))?: (?P<text>.*)")


def posted(line: str, ids: Mapping[str, str]) -> Json:
    """Return a line as a message to post, such as `user#its-id: hi` or `zone (error): no clock`."""
    found = _LINE.fullmatch(line)
    assert found, line
    if found["who"] == "user":
        named = {"id": found["id"]} if found["id"] else {}
        return {"role": "user", "content": found["text"], **named}
    call = {"role": "tool", "toolCallId": ids[found["who"]], "content": found["text"]}
    return call | ({"isError": True} if found["error"] else {})


def resumed(line: str, ids: Mapping[str, str]) -> Json | None:
    """Return an answer to an interrupt: `wipe? yes`, `wipe? no, not now`. None: it is a message."""
    found = _ANSWER.fullmatch(line)
    if found is None:
        return None
    payload: Json = {"approved": found["word"] != "no"}
    payload |= {"always": True} if found["word"] == "always" else {}
    payload |= {"reason": found["reason"]} if found["reason"] else {}
    return {"interruptId": ids[found["who"]], "payload": payload}


def history(messages: Sequence[Json]) -> list[str]:
    """Return a conversation's messages as lines, with `partial`, `error` and synthesis marked."""
    return list(_lines(messages, "toolCalls", "toolCallId"))


def asked(messages: Sequence[Json]) -> list[str]:
    """Return what a model is shown, without the agent's own prompt."""
    shown = [each for each in messages if each["role"] != "system"]
    return list(_lines(shown, "tool_calls", "tool_call_id"))


def names_of(messages: Sequence[Json], key: str = "toolCalls") -> dict[str, str]:
    """The tool of each call."""
    calls = [call for each in messages for call in each.get(key) or ()]
    return {call["id"]: call["function"]["name"] for call in calls}


def _lines(messages: Sequence[Json], calls: str, call: str) -> Iterable[str]:
    names = names_of(messages, calls)
    for each in messages:
        if each["role"] == "approval":
            word = "always" if each.get("always") else "yes" if each["approved"] else "no"
            yield ", ".join(
                [f"{names[each['toolCallId']]}? {word}", *filter(None, [each.get("reason")])]
            )
            continue
        who = names[each[call]] if each["role"] == "tool" else each["role"]
        if each.get("synthetic"):
            yield f"{who} ({each['synthetic']})"
            continue
        marks = [mark for mark in ("partial", "isError") if each.get(mark)]
        called = ", ".join(one["function"]["name"] for one in each.get(calls) or ())
        text = " ".join(filter(None, [each["content"], called and f"-> {called}"]))
        mark = {"partial": " (partial)", "isError": " (error)"}[marks[0]] if marks else ""
        yield f"{who}{mark}: {text}"
