"""The claims of owed calls in the SQLite store: which client is at work on which, and until when."""

import sqlite3

from passback.core.changes import CallClaim
from passback.stores.layout import PackedHold
from passback.stores.sqlite.rows import find, now, update


def claim_call(db: sqlite3.Connection, hold: PackedHold, /) -> CallClaim | None:
    """Write a claim that is known by its nonce; one that is over at once is given back."""
    row = find(db, hold.tag)
    if row is None:
        return None
    time = now()
    claims = _claims(db, row["id"], time)
    whose, until = claims.get(hold.call, (hold.claimant, time))
    if row["nonce"] == hold.nonce:
        return CallClaim(True, until, until - time)
    if row["version"] != hold.expected or row["running"]:
        return None
    if whose != hold.claimant:
        return CallClaim(False, until, until - time)
    until = time + hold.milliseconds
    claims.pop(hold.call, None)
    if until > time:
        claims[hold.call] = hold.claimant, until
    update(db, row["id"], version=row["version"] + 1, nonce=hold.nonce)
    packed = " ".join(f"{call} {whose} {end}" for call, (whose, end) in claims.items())
    db.execute("UPDATE extras SET claims = ? WHERE conversation = ?", (packed, row["id"]))
    return CallClaim(True, until, until - time)


def _claims(db: sqlite3.Connection, conversation: int, time: int) -> dict[str, tuple[str, int]]:
    """Those that are not over: the claimant and the end, by the call."""
    found = db.execute("SELECT claims FROM extras WHERE conversation = ?", (conversation,))
    words = (found.fetchone()["claims"] or "").split()
    claims = zip(words[::3], words[1::3], map(int, words[2::3]), strict=True)
    return {call: (whose, until) for call, whose, until in claims if until > time}
