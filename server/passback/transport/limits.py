"""What is left of limits as clients see it."""

from typing import NotRequired

from typing_extensions import TypedDict

from passback.core.limits import Left


class LeftView(TypedDict):
    """What is left of the tightest limit of each kind; what is not limited is not there."""

    turns: NotRequired[int]
    tokens: NotRequired[int]
    seconds: NotRequired[float]
    cost: NotRequired[float]


def left_view(left: Left, /) -> LeftView:
    view: LeftView = {}
    if left.turns is not None:
        view["turns"] = left.turns
    if left.tokens is not None:
        view["tokens"] = left.tokens
    if left.seconds is not None:
        view["seconds"] = _round(left.seconds)
    if left.cost is not None:
        view["cost"] = _round(left.cost)
    return view


def left_headers(left: Left | None, /) -> dict[str, str]:
    """Of an answer: what is left when it begins, as plain decimal numbers."""
    if left is None:
        return {}
    view = left_view(left)
    return {f"x-budget-left-{kind}": _plain(amount) for kind, amount in view.items()}


def _plain(amount: object) -> str:
    return f"{amount:f}".rstrip("0").rstrip(".") if isinstance(amount, float) else str(amount)


def _round(number: float) -> float:
    return round(number, 6)
