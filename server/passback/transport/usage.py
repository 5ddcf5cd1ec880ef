"""Tokens as clients see them."""

from typing import NotRequired

from typing_extensions import TypedDict

from passback.core.messages import Usage


class UsageView(TypedDict):
    """Tokens of model calls, as the provider counts them; `estimated` is there when an answer was cut before it said."""

    inputTokens: int
    outputTokens: int
    cachedTokens: int
    reasoningTokens: int
    estimated: NotRequired[bool]


def usage_view(usage: Usage, /) -> UsageView:
    view: UsageView = {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "cachedTokens": usage.cached_tokens,
        "reasoningTokens": usage.reasoning_tokens,
    }
    if usage.estimated:
        view["estimated"] = True
    return view
