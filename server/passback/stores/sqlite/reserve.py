"""Room on the disk that is kept for deleting: a deletion writes too, and on a full disk nothing could be made free."""

import os
import shutil
from pathlib import Path

from passback.core.errors import StoreFull

# what the file may have to grow by until the write-ahead log, of 4 MiB, can begin anew
RESERVE_BYTES = 4 * 2**20
LEAST_FREE = 256 * 2**10  # bytes: less is not enough for a post
_PIECE_BYTES = 64 * 1024


def refuse_full_disk(store: Path, /) -> None:
    """Raises StoreFull. That one page can be written says little: the write-ahead log may have had room for just that."""
    if shutil.disk_usage(store.parent).free < LEAST_FREE:
        raise StoreFull(f"the disk of the store's file {store} is full")


class Reserve:
    """A file beside the store's, there while there is room and gone when it is needed.

    Its bytes are random: a file system that compresses would keep no room by zeros.
    """

    def __init__(self, store: Path, /) -> None:
        self._path = store.with_name(f"{store.name}-reserve")

    def fill(self) -> bool:
        """Take the room, if the disk has twice as much. False: it is not taken; no condition for serving."""
        try:
            if shutil.disk_usage(self._path.parent).free < 2 * RESERVE_BYTES:
                return False
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return True
        except OSError:
            return False
        try:
            for _ in range(RESERVE_BYTES // _PIECE_BYTES):
                os.write(file, os.urandom(_PIECE_BYTES))
        except OSError:
            self._path.unlink(missing_ok=True)
            return False
        finally:
            os.close(file)
        return True

    def release(self) -> bool:
        """Give the room back. False: there was none."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True
