"""Tests whose coverage is not measured."""

from collections.abc import Iterator

import pytest
from coverage import Coverage


@pytest.fixture(autouse=True, scope="module")
def unmeasured(request: pytest.FixtureRequest) -> Iterator[None]:
    """Measure neither the processes that a test starts nor, but for modules with the mark `measured`, this one.

    Measuring costs half a second for each process, and makes what runs some times slower. The server reaches its floors
    by the unit and contract tests.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
        is_measured = request.node.get_closest_marker("measured") is not None
        measuring = None if is_measured else Coverage.current()
        if measuring is not None:
            measuring.stop()
        yield
        if measuring is not None:
            measuring.start()
