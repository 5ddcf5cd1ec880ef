"""Text that cannot be written as UTF-8, made so that it can."""


def mended(text: str, /) -> str:
    """The text with U+FFFD in place of each lone surrogate; a pair that was split in two becomes one character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
