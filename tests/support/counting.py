"""Counts calls of the product's own functions: what work costs, without a clock."""

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import passback

_OURS = str(Path(passback.__file__).parent)


class Calls:
    """How many there were so far, in the thread of the event loop."""

    def __init__(self) -> None:
        self.made = 0

    def profile(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_OURS):
            self.made += 1


@contextmanager
def counted_calls() -> Generator[Calls]:
    assert threading.current_thread() is threading.main_thread()
    calls, before = Calls(), sys.getprofile()
    sys.setprofile(calls.profile)
    try:
        yield calls
    finally:
        sys.setprofile(before)
