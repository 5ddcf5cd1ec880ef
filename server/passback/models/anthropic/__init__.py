"""Anthropic's Messages API, and services that speak it."""

from passback.models.anthropic.client import Anthropic, create
from passback.models.http.bounds import Bounds

__all__ = ["Anthropic", "Bounds", "create"]
