"""What owners have spent, in the SQLite store: a count for each day, and one for each lease of a run."""

import sqlite3
from collections.abc import Sequence

from passback.stores.layout import SPENT_MOST, SPENT_TTL, PackedSpending
from passback.stores.sqlite.rows import SWEEP_LIMIT, now


def spend(db: sqlite3.Connection, spending: PackedSpending, /) -> Sequence[int]:
    """Count what is more than what is known of a lease; gives the amounts of the day."""
    known = _amounts(db, spending.tag, spending.lease)
    more = [max(0, given - before) for given, before in zip(spending.amounts, known, strict=True)]
    sums = _sum(_amounts(db, spending.tag, spending.day), more)
    if any(more):
        keep_until = now() + SPENT_TTL
        db.executemany(
            "INSERT OR REPLACE INTO spent VALUES (?, ?, ?, ?, ?, ?)",
            (
                (spending.tag, part, *amounts, keep_until)
                for part, amounts in ((spending.day, sums), (spending.lease, _sum(known, more)))
            ),
        )
        db.execute(
            "DELETE FROM spent WHERE rowid IN (SELECT rowid FROM spent WHERE keep_until <= ? LIMIT ?)",
            (now(), SWEEP_LIMIT),
        )
    return sums


def _amounts(db: sqlite3.Connection, tag: str, part: str) -> Sequence[int]:
    row: sqlite3.Row | None = db.execute(
        "SELECT tokens, milliseconds, billionths FROM spent"
        " WHERE tag = ? AND part = ? AND keep_until > ?",
        (tag, part, now()),
    ).fetchone()
    return tuple(row) if row else (0, 0, 0)


def _sum(one: Sequence[int], other: Sequence[int]) -> Sequence[int]:
    return tuple(min(SPENT_MOST, a + b) for a, b in zip(one, other, strict=True))
