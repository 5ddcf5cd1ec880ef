"""Where work on posted texts runs."""

from collections.abc import Sequence
from threading import get_ident

import pytest

from passback.http.body import work_on

pytestmark = pytest.mark.anyio

KIB = 1024


@pytest.mark.parametrize(
    ("texts", "apart"),
    [([], False), (["x" * 15 * KIB], False), (["x" * 16 * KIB], True), ([""] * 200, True)],
)
async def test_large_texts_and_many_are_worked_on_in_a_thread(
    texts: Sequence[str], apart: bool
) -> None:
    async def place() -> bool:
        return await work_on(texts, lambda here: get_ident() != here, get_ident())

    assert await place() is apart
