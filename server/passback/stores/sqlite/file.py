"""The SQLite file: opening it, refusing a foreign one, and room on its disk."""

import errno
import os
import shutil
import sqlite3
import stat
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from passback.core.errors import ConfigurationError, StoreFull
from passback.stores.sqlite.tables import has_no_tables, make_tables

MOUNTS = Path("/proc/mounts")

# fmt: off
NETWORK_FILE_SYSTEMS = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ncpfs", "ceph", "glusterfs", "lustre", "gpfs",
    "beegfs", "gfs2", "ocfs2", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs",
    "fuse.rclone",
})
# fmt: on


_WAL_PAUSE = 0.01  # seconds
_NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)  # not on Windows


def prepare_file(path: Path, /) -> None:
    """Make the file, readable by its owner alone, and its folder.

    Raises:
        ConfigurationError: it cannot be made there, several machines could write to it, or it is
            a link in a folder where others may have put it.
    """
    try:
        mounts = MOUNTS.read_text(errors="replace")
    except OSError:
        mounts = ""
    kind = file_system_of(path, mounts)
    if kind in NETWORK_FILE_SYSTEMS:
        raise ConfigurationError(
            f"the store's file {path} is on a network file system ({kind}), where locks are not "
            "reliable: use a local disk, or Redis for several machines"
        )
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # others than its owner may put files there, as into /tmp
        is_shared = path.parent.stat().st_mode & (stat.S_IWOTH | stat.S_ISVTX)
        follow = _NO_LINK if is_shared else 0
        # a file that is there keeps its mode: it may be another program's
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | follow, 0o600))
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ConfigurationError(
                f"the store's file {path} is a symbolic link in a folder where everybody may put "
                "one: name the file itself, or use a folder of your own"
            ) from error
        raise ConfigurationError(
            f"the store's file {path} cannot be opened: {error.strerror}"
        ) from error


def warn_of_others(path: Path, /) -> list[str]:
    """Warn the owner of a file of what others of this machine could do with it."""
    if sys.platform == "win32":  # its modes say nothing
        return []
    file, folder = path.stat().st_mode & 0o777, path.parent.stat().st_mode
    warnings = [
        f"{place} belongs to another user of this machine, who can change the store: "
        "use a folder of your own."
        for place in (path, path.parent)
        if place.stat().st_uid not in {os.getuid(), 0}
    ]
    if file & 0o077:
        warnings.append(
            f"The store's file {path} is open to other users of this machine (mode {file:04o}): "
            "chmod 600 it."
        )
    # where the sticky bit is set, nobody replaces another's file
    if folder & 0o022 and not folder & stat.S_ISVTX:
        warnings.append(
            f"Other users of this machine can replace the store's file: its folder {path.parent} "
            f"has mode {folder & 0o777:04o}. chmod 700 it, or use a folder of your own."
        )
    return warnings


def file_system_of(path: Path, mounts: str, /) -> str | None:
    """Return the type of a path's file system, by a table like /proc/mounts; None if unknown."""
    target = path.absolute()
    best, kind = -1, None
    for line in mounts.splitlines():
        _, place, found, *_ = (*line.split(), "", "", "")
        mount = Path(place.encode().decode("unicode_escape", "replace"))
        if place and target.is_relative_to(mount) and len(mount.parts) >= best:
            best, kind = len(mount.parts), found
    return kind


def connect(path: Path, busy_timeout: float, /) -> sqlite3.Connection:
    """Open a prepared file.

    `busy_timeout`: seconds to wait for other writers.

    Raises:
        ConfigurationError: it is another program's file, of another schema version, or damaged.
    """
    with ExitStack() as stack:
        try:
            db = sqlite3.connect(
                path,
                timeout=busy_timeout,
                isolation_level=None,
                check_same_thread=False,
            )
            stack.callback(db.close)
            _use_wal(db, time.monotonic() + busy_timeout)
            db.execute("PRAGMA synchronous = FULL")
            db.execute("BEGIN IMMEDIATE")
            make_tables(db)
            db.execute("COMMIT")
        except sqlite3.Error as error:
            raise ConfigurationError(
                f"the store's file {path} cannot be used: {error.sqlite_errorname}"
            ) from error
        stack.pop_all()
        return db


def _refuse_foreign(db: sqlite3.Connection) -> None:
    db.execute("BEGIN")  # another process may be making the tables
    try:
        has_no_tables(db)
    finally:
        db.execute("ROLLBACK")


def _use_wal(db: sqlite3.Connection, deadline: float) -> None:
    """Switch a file of ours to the write-ahead log, and wait for other processes meanwhile."""
    # SQLite's busy timeout does not cover this change of a new file
    while True:
        try:
            _refuse_foreign(db)  # a foreign file is not changed
            db.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(_WAL_PAUSE)
        else:
            return


# ---------------------------------------------------------------- room on the disk
# as much as the file may grow by until the write-ahead log, of 4 MiB, can begin anew
RESERVE_BYTES = 4 * 2**20
MIN_FREE_BYTES = 256 * 2**10  # less is not enough for a post
_PIECE_BYTES = 64 * 1024


def refuse_full_disk(store: Path, /) -> None:
    """Raise StoreFull when the disk has no room for a post."""
    # that one page can be written says little: the write-ahead log may have had room for just that
    if shutil.disk_usage(store.parent).free < MIN_FREE_BYTES:
        raise StoreFull(
            f"the disk of the store's file {store} is full: free space on it, or use another folder"
        )


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
