"""Servers whose coverage is not measured."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def unmeasured() -> Iterator[None]:
    """Measuring costs half a second for each process that a test starts; what runs in these, other tests run, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
        yield
