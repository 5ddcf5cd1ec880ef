"""The embedded demo model, which needs no key and no network."""

from passback.models.demo.client import DemoModel, create

__all__ = ["DemoModel", "create"]
