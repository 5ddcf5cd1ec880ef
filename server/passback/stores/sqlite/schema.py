"""The SQLite file: what it looks like, how it is opened, and when it is refused."""

import os
import sqlite3
from pathlib import Path

from passback.core.errors import ConfigurationError

SCHEMA_VERSION = 1
MOUNTS = Path("/proc/mounts")

# fmt: off
NETWORK_FILE_SYSTEMS = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ncpfs", "ceph", "glusterfs", "lustre", "gpfs", "beegfs",
    "gfs2", "ocfs2", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone",
})
# fmt: on

# The row of a conversation is written with every batch of events, so what may be large is kept apart from it.
SCHEMA = """
CREATE TABLE conversations (
    id INTEGER PRIMARY KEY,
    tag TEXT NOT NULL UNIQUE,
    version INTEGER NOT NULL,
    nonce TEXT NOT NULL DEFAULT '',         -- of the last change
    messages INTEGER NOT NULL DEFAULT 0,
    run_id TEXT,
    running INTEGER NOT NULL DEFAULT 0,
    epoch INTEGER NOT NULL DEFAULT 0,
    fence TEXT NOT NULL DEFAULT '',
    expires INTEGER NOT NULL DEFAULT 0,     -- end of the lease, milliseconds
    step INTEGER NOT NULL DEFAULT -1,       -- last commit of this lease
    ended TEXT NOT NULL DEFAULT '',         -- fence and step of the commit that ended the last run
    seq INTEGER NOT NULL DEFAULT 0,         -- last event logged under this lease
    cancelled INTEGER NOT NULL DEFAULT 0,
    keep_until INTEGER
);
CREATE INDEX conversations_by_age ON conversations (keep_until) WHERE keep_until IS NOT NULL;
CREATE TABLE extras (
    conversation INTEGER PRIMARY KEY,
    owed BLOB NOT NULL,
    tools BLOB
);
CREATE TABLE messages (
    conversation INTEGER NOT NULL,
    position INTEGER NOT NULL,
    record BLOB NOT NULL,
    PRIMARY KEY (conversation, position)
);
CREATE TABLE answers (
    conversation INTEGER NOT NULL,
    call_id TEXT NOT NULL,
    answer TEXT NOT NULL,
    PRIMARY KEY (conversation, call_id)
) WITHOUT ROWID;
CREATE TABLE logs (
    conversation INTEGER NOT NULL,
    run_id TEXT NOT NULL,
    keep_until INTEGER NOT NULL,
    PRIMARY KEY (conversation, run_id)
) WITHOUT ROWID;
CREATE INDEX logs_by_age ON logs (keep_until);
CREATE TABLE entries (
    conversation INTEGER NOT NULL,
    run_id TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    last INTEGER NOT NULL,          -- number of the entry's last event
    size INTEGER NOT NULL,
    record BLOB NOT NULL,
    PRIMARY KEY (conversation, run_id, epoch, last)
);
"""


def prepare_file(path: Path, /) -> None:
    """Make the file, readable by its owner alone, and its folder.

    Raises:
        ConfigurationError: it cannot be made there, or several machines could write to it.
    """
    kind = file_system_of(path, _mounts())
    if kind in NETWORK_FILE_SYSTEMS:
        raise ConfigurationError(
            f"the store's file {path} is on a network file system ({kind}), where locks are not "
            "reliable: use a local disk, or Redis for several machines"
        )
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # a file that is there keeps its mode: it may be another program's
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise ConfigurationError(
            f"the store's file {path} cannot be opened: {error.strerror}"
        ) from error


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
    db = sqlite3.connect(
        path or ":memory:", timeout=busy_timeout, isolation_level=None, check_same_thread=False
    )
    try:
        _set_up(db)
    except (sqlite3.Error, ConfigurationError) as error:
        db.close()
        if isinstance(error, ConfigurationError):
            raise
        raise ConfigurationError(
            f"the store's file {path} cannot be used: {error.sqlite_errorname}"
        ) from error
    return db


def _set_up(db: sqlite3.Connection) -> None:
    db.row_factory = sqlite3.Row
    db.execute("PRAGMA journal_mode = WAL").fetchone()
    db.execute("PRAGMA synchronous = FULL")
    db.execute("BEGIN IMMEDIATE")
    try:
        _make_tables(db)
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.rollback()


def _make_tables(db: sqlite3.Connection) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version == SCHEMA_VERSION:
        return
    if version > SCHEMA_VERSION:
        raise ConfigurationError(
            f"the store's file has schema version {version}; this passback knows {SCHEMA_VERSION}: "
            "use the newer passback, or another file"
        )
    if db.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise ConfigurationError("the store's file is a database of another program")
    for statement in SCHEMA.split(";"):
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
