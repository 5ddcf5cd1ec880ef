"""What owners have spent, in the SQLite store: a count for each day, and one for each lease of a run."""

import sqlite3
from collections.abc import Sequence

from passback.stores.layout import SPENT_MOST, SPENT_TTL, PackedSpending
from passback.stores.sqlite.rows import SWEEP_LIMIT, now


def spend(db: sqlite3.Connection, spending: PackedSpending, /) -> Sequence[int]:
    """Replace what is known of a lease by what is newer; gives the amounts of the day."""
    *known, seq = _amounts(db, spending.tag, spending.lease)
    *sums, _ = _amounts(db, spending.tag, spending.day)
    if spending.seq <= seq:
        return sums
    changed = (given - before for given, before in zip(spending.amounts, known, strict=True))
    sums = [_moved(total, by) for total, by in zip(sums, changed, strict=True)]
    keep_until = now() + SPENT_TTL
    db.executemany(
        "INSERT OR REPLACE INTO spent VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            (spending.tag, spending.day, *sums, keep_until, 0),
            (spending.tag, spending.lease, *spending.amounts, keep_until, spending.seq),
        ),
    )
    db.execute(
        "DELETE FROM spent WHERE rowid IN (SELECT rowid FROM spent WHERE keep_until <= ? LIMIT ?)",
        (now(), SWEEP_LIMIT),
    )
    return sums


def _amounts(db: sqlite3.Connection, tag: str, part: str) -> Sequence[int]:
    """Read the amounts of a day or a lease, with the number of what was said last."""
    row: sqlite3.Row | None = db.execute(
        "SELECT tokens, milliseconds, billionths, seq FROM spent"
        " WHERE tag = ? AND part = ? AND keep_until > ?",
        (tag, part, now()),
    ).fetchone()
    return tuple(row) if row else (0, 0, 0, 0)


def _moved(total: int, by: int) -> int:
    """Move an amount. One that is too large to be exact does not fall."""
    return total if total == SPENT_MOST else min(SPENT_MOST, max(0, total + by))
