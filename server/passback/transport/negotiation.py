"""Which form of an answer a client accepts best: its `Accept` header (RFC 9110, 12.5.1)."""

import re
from collections.abc import Sequence

from passback.core.errors import NotAcceptable

_RANGE = re.compile(r"\s*([^\s;,/]+)/([^\s;,/]+)\s*((?:;[^,]*)?)", re.ASCII)
_WEIGHT = re.compile(
    r";\s*q\s*=\s*(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)\s*(?:;|$)", re.ASCII | re.IGNORECASE
)
_ANY_WEIGHT = re.compile(r";\s*q\s*=", re.IGNORECASE)


def accepted(header: str, offers: Sequence[str], /) -> str:
    """The offered media type that the client likes best; of those that it likes alike, the first.

    Args:
        header: the client's; empty: it takes anything. What cannot be read in it accepts nothing.
        offers: types without parameters, lower case; those of the client's ranges do not matter, but for `q`.

    Raises:
        NotAcceptable: it takes none of them.
    """
    if header.strip() in {"", "*/*", offers[0]}:
        return offers[0]
    weights = _weights(header.lower())
    best = max(offers, key=lambda offer: _liking(offer, weights))
    if _liking(best, weights) == 0:
        raise NotAcceptable(
            f"the answer can be {' or '.join(offers)}", details={"available": list(offers)}
        )
    return best


def _weights(header: str) -> dict[str, float]:
    """The weight of each range, the largest where one is named twice."""
    weights: dict[str, float] = {}
    for element in header.split(","):
        if found := _RANGE.fullmatch(element):
            kind, parameters = f"{found[1]}/{found[2]}", found[3]
            weights[kind] = max(weights.get(kind, 0), _weight(parameters))
    return weights


def _weight(parameters: str) -> float:
    if found := _WEIGHT.search(parameters):
        return float(found[1])
    return 0 if _ANY_WEIGHT.search(parameters) else 1


def _liking(offer: str, weights: dict[str, float]) -> float:
    """The weight of the range that names an offer most exactly."""
    ranges = (offer, f"{offer.partition('/')[0]}/*", "*/*")
    return next((weights[each] for each in ranges if each in weights), 0)
