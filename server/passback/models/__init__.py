"""Clients of models' services, and what a client of your own is made of.

A client has the methods of `ModelClient`: it gets a `ModelRequest`, and yields `ModelDelta`s.
"""

from passback.core.deltas import (
    AnsweredBy,
    Finish,
    FinishReason,
    LostUsageChunk,
    ModelDelta,
    ModelRequest,
    ReasoningBlock,
    ReasoningChunk,
    TextChunk,
    ToolCallChunk,
    UsageChunk,
)
from passback.core.ports import ModelClient

__all__ = [
    "AnsweredBy",
    "Finish",
    "FinishReason",
    "LostUsageChunk",
    "ModelClient",
    "ModelDelta",
    "ModelRequest",
    "ReasoningBlock",
    "ReasoningChunk",
    "TextChunk",
    "ToolCallChunk",
    "UsageChunk",
]
