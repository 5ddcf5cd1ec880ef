"""`passback` that tells how many tasks it has: after SIGUSR1, in the file that `FAULTS_TASKS` names plus its process id.

python -m tests.faults.watched serve --port 0 ...
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from tests.faults.places import TASKS

from passback.cli import main


def _tell(_signal: int, _frame: FrameType | None) -> None:
    path = Path(f"{os.environ[TASKS]}{os.getpid()}")
    written = path.with_suffix(".new")
    written.write_text(str(len(asyncio.all_tasks())))
    written.rename(path)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, _tell)
    sys.exit(main())
