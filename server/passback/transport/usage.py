"""Tokens as clients see them."""

from typing_extensions import TypedDict

from passback.core.messages import Usage


class UsageView(TypedDict):
    """Tokens of model calls, as the provider counts them."""

    inputTokens: int
    outputTokens: int
    cachedTokens: int
    reasoningTokens: int


def usage_view(usage: Usage, /) -> UsageView:
    return {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "cachedTokens": usage.cached_tokens,
        "reasoningTokens": usage.reasoning_tokens,
    }
