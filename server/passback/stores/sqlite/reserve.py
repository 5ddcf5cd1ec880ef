"""Disk space that is reserved for deletions, which write too: a full disk could not be emptied."""

import os
import shutil
from pathlib import Path

from passback.core.errors import StoreFull

# as much as the file may grow by until the write-ahead log, of 4 MiB, can begin anew
RESERVE_BYTES = 4 * 2**20
MIN_FREE_BYTES = 256 * 2**10  # less is not enough for a post
_PIECE_BYTES = 64 * 1024


def refuse_full_disk(store: Path, /) -> None:
    """Raise StoreFull when the disk has no room for a post."""
    # that one page can be written says little: the write-ahead log may have had room for just that
    if shutil.disk_usage(store.parent).free < MIN_FREE_BYTES:
        raise StoreFull(f"the disk of the store's file {store} is full")


class Reserve:
    """A file beside the store's, which is deleted when a deletion needs its room.

    Its bytes are random: a file system that compresses would reserve nothing for zeros.
    """

    def __init__(self, store: Path, /) -> None:
        self._path = store.with_name(f"{store.name}-reserve")

    def fill(self) -> bool:
        """Make the file, if the disk has twice its size free; return whether it is there.

        The store works without it, too.
        """
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
        """Delete the file; return False if there was none."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True
