"""The limits of sizes and of retries."""

from dataclasses import dataclass, fields

from passback_client.arguments import Rule, check_fields, is_seconds, is_whole, optional

MIB = 1024 * 1024


_COUNT = Rule("a whole number of at least 0", is_whole(0))
_SECONDS = Rule("seconds, at least 0", is_seconds)
_RETRY = {
    "attempts": Rule("a whole number of at least 1, or None", optional(is_whole(1))),
    "first": _SECONDS,
    "longest": _SECONDS,
    "longest_retry_after": _SECONDS,
    "claim": Rule("whole seconds, at most 600", is_whole(0, 600)),
    "silence": _SECONDS,
}


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of sizes; larger values are refused.

    Attributes:
        frame_chars: of one event of a stream.
        body_bytes: of a response that is not a stream; of an error's body, only 64 KiB are read.
        owed_calls: calls that may be owed at a time.
        argument_chars: of one call's arguments, as JSON; a call with more gets an error result.
        result_bytes: of one tool's result, as JSON; a larger one becomes an error result.
        result_depth: levels of arrays and objects in one; a deeper one becomes an error result. A
            server accepts 64 in a whole post.
        error_chars: of a tool's error; the rest is cut.
        rounds: runs that one `send` may lead to.
        text_chars: of the text that an `Answer` collects.
        call_chars: of the calls that an `Answer` collects: arguments, results, and text of
            sub-agents.
    """

    frame_chars: int = 8 * MIB
    body_bytes: int = 16 * MIB
    owed_calls: int = 128
    argument_chars: int = MIB
    result_bytes: int = MIB
    result_depth: int = 56
    error_chars: int = 4096
    rounds: int = 100
    text_chars: int = 16 * MIB
    call_chars: int = 64 * MIB

    def __post_init__(self) -> None:
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        check_fields(given, dict.fromkeys(given, _COUNT), "Limits: ")


@dataclass(frozen=True, slots=True)
class Retry:
    """The retries of a request. Times are in seconds.

    Attributes:
        attempts: that may fail in a row; each event counts as success. None: 8, and a client whose
            server has never answered gives up within two seconds.
        first: pause before the first retry; doubled each time, with jitter. A stream's `retry:`
            replaces it.
        longest: of these pauses.
        longest_retry_after: longest pause that a server may ask for; for a longer one its error is
            raised.
        claim: duration of a claim, 1 to 600; it is renewed after a third of it.
        silence: time without a byte after which a connection counts as broken; the server pings
            every 15 s.
    """

    attempts: int | None = None
    first: float = 0.4
    longest: float = 8.0
    longest_retry_after: float = 60.0
    claim: int = 30
    silence: float = 45.0

    def __post_init__(self) -> None:
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        check_fields(given, _RETRY, "Retry: ")
