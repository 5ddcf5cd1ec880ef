"""Conversations in one SQLite file, or in memory: the store that needs no other program."""

from passback.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
