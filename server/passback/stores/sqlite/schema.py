"""The SQLite file: what it looks like, how it is opened, and when it is refused."""

import errno
import os
import sqlite3
import stat
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from passback.core.errors import ConfigurationError
from passback.stores.sqlite.tables import MIGRATIONS, SCHEMA, SCHEMA_VERSION

MOUNTS = Path("/proc/mounts")

# fmt: off
NETWORK_FILE_SYSTEMS = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ncpfs", "ceph", "glusterfs", "lustre", "gpfs", "beegfs",
    "gfs2", "ocfs2", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone",
})
# fmt: on


_WAL_PAUSE = 0.01
_NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)  # not on Windows


def prepare_file(path: Path, /) -> None:
    """Make the file, readable by its owner alone, and its folder.

    Raises:
        ConfigurationError: it cannot be made there, several machines could write to it, or it is a link in a folder
            where others may have put it.
    """
    kind = file_system_of(path, _mounts())
    if kind in NETWORK_FILE_SYSTEMS:
        raise ConfigurationError(
            f"the store's file {path} is on a network file system ({kind}), where locks are not "
            "reliable: use a local disk, or Redis for several machines"
        )
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        follow = _NO_LINK if _is_shared(path.parent) else 0
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


def _is_shared(folder: Path) -> bool:
    """Return whether others than its owner may put files into a folder, as into the one for temporary files."""
    return bool(folder.stat().st_mode & (stat.S_IWOTH | stat.S_ISVTX))


def warn_of_others(path: Path, /) -> list[str]:
    """Warn the owner of a file of what others of this machine could do with it."""
    if sys.platform == "win32":  # its modes say nothing
        return []
    file, folder = path.stat().st_mode & 0o777, path.parent.stat().st_mode
    warnings = [
        f"{place} belongs to another user of this machine, who can change the store: use a folder of your own."
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
    """The type of the file system that holds a path, by a table like /proc/mounts; None when unknown."""
    target = path.absolute()
    best, kind = -1, None
    for line in mounts.splitlines():
        _, place, found, *_ = (*line.split(), "", "", "")
        mount = Path(place.encode().decode("unicode_escape", "replace"))
        if place and target.is_relative_to(mount) and len(mount.parts) >= best:
            best, kind = len(mount.parts), found
    return kind


def _mounts() -> str:
    try:
        return MOUNTS.read_text(errors="replace")
    except OSError:
        return ""


def connect(path: Path | None, busy_timeout: float, /) -> sqlite3.Connection:
    """Open a prepared file, or a database in memory; `busy_timeout`: seconds to wait for other writers.

    Raises:
        ConfigurationError: it is another program's file, of a newer version, or damaged.
    """
    with ExitStack() as stack:
        try:
            db = sqlite3.connect(
                path or ":memory:",
                timeout=busy_timeout,
                isolation_level=None,
                check_same_thread=False,
            )
            stack.callback(db.close)
            _set_up(db, busy_timeout)
        except sqlite3.Error as error:
            raise ConfigurationError(
                f"the store's file {path} cannot be used: {error.sqlite_errorname}"
            ) from error
        stack.pop_all()
        return db


def _set_up(db: sqlite3.Connection, busy_timeout: float) -> None:
    db.row_factory = sqlite3.Row
    _use_wal(db, time.monotonic() + busy_timeout)
    db.execute("PRAGMA synchronous = FULL")
    db.execute("BEGIN IMMEDIATE")
    try:
        _make_tables(db)
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.rollback()


def _use_wal(db: sqlite3.Connection, deadline: float) -> None:
    """SQLite's own waiting for others does not cover this change of a new file."""
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(_WAL_PAUSE)
        else:
            return


def _make_tables(db: sqlite3.Connection) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version == SCHEMA_VERSION:
        return
    if version > SCHEMA_VERSION:
        raise ConfigurationError(
            f"the store's file has schema version {version}; this passback knows {SCHEMA_VERSION}: "
            "use the newer passback, or another file"
        )
    scripts = [SCHEMA]
    if version in MIGRATIONS:
        scripts = [MIGRATIONS[older] for older in range(version, SCHEMA_VERSION)]
    elif db.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise ConfigurationError("the store's file is a database of another program")
    for script in scripts:
        for statement in script.split(";"):
            db.execute(statement)
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
