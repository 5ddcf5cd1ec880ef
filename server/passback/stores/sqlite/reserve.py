"""Room on the disk that is kept for deleting: a deletion writes too, and on a full disk nothing could be made free."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from passback.core.errors import StoreFull

RESERVE_BYTES = (
    4 * 2**20
)  # what the file may have to grow by until the write-ahead log, of 4 MiB, can begin anew
LEAST_FREE = 256 * 2**10  # bytes: less is not enough for a post
_PIECE = bytes(64 * 1024)


def refuse_full_disk(store: Path, /) -> None:
    """Raises StoreFull. That one page can be written says little: the write-ahead log may have had room for just that."""
    if shutil.disk_usage(store.parent).free < LEAST_FREE:
        raise StoreFull(f"the disk of the store's file {store} is full")


class Reserve:
    """A file of zeros beside the store's, in the way while there is room and gone when it is needed."""

    def __init__(self, store: Path, /) -> None:
        self._path = store.with_name(f"{store.name}-reserve")

    def fill(self) -> None:
        """Take the room, unless it is taken, or the disk has not twice as much."""
        with suppress(OSError):  # it is no condition for serving
            if shutil.disk_usage(self._path.parent).free < 2 * RESERVE_BYTES:
                return
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                for _ in range(RESERVE_BYTES // len(_PIECE)):
                    os.write(file, _PIECE)
            finally:
                os.close(file)

    def release(self) -> bool:
        """Give the room back. False: there was none."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True
