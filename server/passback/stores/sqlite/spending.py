"""Spending of owners in the SQLite store: a count for each day, and for each lease of a run."""

import sqlite3
from collections.abc import Sequence

from passback.stores.layout import SPENT_MOST, SPENT_TTL, PackedSpending
from passback.stores.sqlite.rows import SWEEP_LIMIT, now_ms


def add_spending(db: sqlite3.Connection, spending: PackedSpending, /) -> Sequence[int]:
    """Replace the amounts of a lease by newer ones; return the amounts of the day."""
    *known, seq = _read_amounts(db, spending.tag, spending.lease)
    *sums, _ = _read_amounts(db, spending.tag, spending.day)
    if spending.seq <= seq:
        return sums
    changed = (given - before for given, before in zip(spending.amounts, known, strict=True))
    sums = [_add_amount(total, by) for total, by in zip(sums, changed, strict=True)]
    keep_until = now_ms() + SPENT_TTL
    db.executemany(
        "INSERT OR REPLACE INTO spent VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            (spending.tag, spending.day, *sums, keep_until, 0),
            (spending.tag, spending.lease, *spending.amounts, keep_until, spending.seq),
        ),
    )
    db.execute(
        "DELETE FROM spent WHERE rowid IN (SELECT rowid FROM spent WHERE keep_until <= ? LIMIT ?)",
        (now_ms(), SWEEP_LIMIT),
    )
    return sums


def _read_amounts(db: sqlite3.Connection, tag: str, part: str) -> Sequence[int]:
    """Read the amounts of a day or a lease, and the number of the newest ones."""
    row: sqlite3.Row | None = db.execute(
        "SELECT tokens, milliseconds, billionths, seq FROM spent"
        " WHERE tag = ? AND part = ? AND keep_until > ?",
        (tag, part, now_ms()),
    ).fetchone()
    return tuple(row) if row else (0, 0, 0, 0)


def _add_amount(total: int, by: int) -> int:
    """Add to an amount. One that is too large to be exact does not fall."""
    return total if total == SPENT_MOST else min(SPENT_MOST, max(0, total + by))
