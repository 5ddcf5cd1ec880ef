"""Times in the form that clients get."""

from datetime import UTC, datetime


def utc_timestamp(milliseconds: int, /) -> str:
    """Return a time of the store's clock as RFC 3339, such as `2026-01-31T12:00:00.000Z`."""
    time = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return time.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
