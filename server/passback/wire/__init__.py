"""The protocols: one package each, which declares all that it needs. None imports another.

A package has `WIRE`, a `http.wires.WireType`. Its name stands in `NAMES`, and nowhere else.
"""

import importlib
from collections.abc import Mapping

from passback.http.wires import WireType

NAMES = ("send_message", "agent_api", "ag_ui", "ai_sdk", "responses", "rest", "chat", "acp", "page")
"""The wires, all of which are served where the settings name none."""


def load_wire_types() -> Mapping[str, WireType]:
    """Import all wires, and return what each declares, by its name."""
    return {name: importlib.import_module(f"passback.wire.{name}").WIRE for name in NAMES}
