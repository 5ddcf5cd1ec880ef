"""What may be said of a tool's being called: decisions, and patterns of names."""

from collections.abc import Awaitable
from dataclasses import replace

import pytest
from tests.unit.core.admission import KEY, call

from passback.core.errors import ConfigurationError
from passback.core.messages import RunId, RunRef
from passback.core.permissions import Decision, Permission, pattern_rule

CALL = call("s", client=False)


@pytest.mark.parametrize(
    ("patterns", "name", "decision"),
    [
        ({"delete_*": "ask"}, "delete_file", "ask"),
        ({"delete_*": "ask"}, "Delete_file", None),
        ({"delete_*": "ask"}, "undelete_file", None),
        ({"delete_?": "ask"}, "delete_a", "ask"),
        ({"delete_[ab]": "ask"}, "delete_c", None),
        ({"delete_*": "ask", "*": "deny"}, "delete_file", "ask"),
        ({"*": "deny", "delete_*": "allow"}, "delete_file", "deny"),
        ({}, "delete_file", None),
    ],
)
@pytest.mark.anyio
async def test_the_first_pattern_that_fits_the_whole_name_decides(
    patterns: dict[str, Decision], name: str, decision: Decision | None
) -> None:
    run = RunRef(KEY, RunId("r"))
    said = pattern_rule(patterns)(replace(CALL, name=name), run)
    assert isinstance(said, Awaitable)
    assert await said == decision


@pytest.mark.parametrize("word", ["", "yes", "ALLOW", None, True, False, "asks"])
def test_what_is_no_decision_is_no_permission(word: Decision) -> None:
    with pytest.raises(ConfigurationError, match="one of allow, deny, ask"):
        Permission(word)
    with pytest.raises(ConfigurationError, match="'delete' has to be one of allow, deny, ask"):
        pattern_rule({"delete": word})
