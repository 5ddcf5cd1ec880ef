"""Text from elsewhere, made so that it can be written down."""


def mended(text: str, /) -> str:
    """The text with U+FFFD in place of each lone surrogate; a pair that was split in two becomes one character."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


_CUT = "\n[cut: the result was longer than the limit]"


def shortened(text: str, limit: int, /) -> str:
    """At most `limit` characters of a tool's result; what is cut says so."""
    return text if len(text) <= limit else text[:limit] + _CUT
