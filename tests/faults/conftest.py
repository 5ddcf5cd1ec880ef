"""The scenarios start a new server for each one that they kill."""

from tests.support.lanes import unmeasured

__all__ = ["unmeasured"]
