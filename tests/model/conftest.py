"""Nothing here is measured: it would take some times longer."""

from tests.support.lanes import unmeasured

__all__ = ["unmeasured"]
