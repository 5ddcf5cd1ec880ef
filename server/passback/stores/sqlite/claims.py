"""Clients' claims of owed calls in the SQLite store."""

import sqlite3

from passback.core.changes import CallClaim
from passback.stores.layout import PackedClaim
from passback.stores.sqlite.rows import find_row, now_ms, update_row


def claim_call(db: sqlite3.Connection, request: PackedClaim, /) -> CallClaim | None:
    """Write a claim, whose nonce tells a repeat; 0 milliseconds give it back."""
    row = find_row(db, request.tag)
    if row is None:
        return None
    time = now_ms()
    claims = _open_claims(db, row["id"], time)
    whose, until = claims.get(request.call, (request.claimant, time))
    if row["nonce"] == request.nonce:
        return CallClaim(True, until, until - time)
    if row["version"] != request.expected or row["running"]:
        return None
    if whose != request.claimant:
        return CallClaim(False, until, until - time)
    until = time + request.milliseconds
    claims.pop(request.call, None)
    if until > time:
        claims[request.call] = request.claimant, until
    update_row(db, row["id"], version=row["version"] + 1, nonce=request.nonce)
    packed = " ".join(f"{call} {whose} {end}" for call, (whose, end) in claims.items())
    db.execute("UPDATE extras SET claims = ? WHERE conversation = ?", (packed, row["id"]))
    return CallClaim(True, until, until - time)


def _open_claims(
    db: sqlite3.Connection, conversation: int, time: int
) -> dict[str, tuple[str, int]]:
    """Return claimant and end of each claim that has not expired, by its call."""
    found = db.execute("SELECT claims FROM extras WHERE conversation = ?", (conversation,))
    words = (found.fetchone()["claims"] or "").split()
    claims = zip(words[::3], words[1::3], map(int, words[2::3]), strict=True)
    return {call: (whose, until) for call, whose, until in claims if until > time}
