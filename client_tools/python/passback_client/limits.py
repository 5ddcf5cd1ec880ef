"""The limits of what this client accepts, and of how long it tries."""

from dataclasses import dataclass, fields

from passback_client.arguments import Takes, maybe, refuse_misfits, seconds, whole

MIB = 1024 * 1024


_COUNT = Takes("a whole number of at least 0", whole(0))
_SECONDS = Takes("seconds, at least 0", seconds)
_RETRY = {
    "attempts": Takes("a whole number of at least 1, or None", maybe(whole(1))),
    "first": _SECONDS,
    "longest": _SECONDS,
    "patience": _SECONDS,
    "claim": Takes("whole seconds, at most 600", whole(0, 600)),
    "silence": _SECONDS,
}


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of sizes; larger values are refused.

    Attributes:
        frame_chars: of one event of a stream.
        body_bytes: of an answer that is no stream; of an error's body, the rest is left unread
            beyond 64 KiB.
        owed_calls: calls that may be owed at a time.
        argument_chars: of one call's arguments, as JSON; a call with more gets an error result.
        result_bytes: of one tool's result, as JSON; a larger one becomes an error result.
        result_depth: levels of arrays and objects in one; a deeper one becomes an error result. A
            server reads 64 in all that is posted.
        error_chars: of a tool's error; the rest is cut.
        rounds: runs that one `send` may lead to.
        text_chars: that an `Answer` collects.
        call_chars: of the calls that an `Answer` collects: arguments, results, and what sub-agents
            say.
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
        refuse_misfits(given, dict.fromkeys(given, _COUNT), "Limits: ")


@dataclass(frozen=True, slots=True)
class Retry:
    """The repeats of a request: how often and when. Times are in seconds.

    Attributes:
        attempts: in a row that may bring nothing; each event counts as success. None: 8, and a
            client whose server has never answered gives up within two seconds.
        first: before the first repeat; doubled each time, with jitter. A stream's `retry:` takes
            its place.
        longest: that these pauses become.
        patience: a server that asks for a longer pause than this gets none: its error is raised.
        claim: for which a call is claimed, 1 to 600; the claim is renewed at a third of it.
        silence: without a byte after which a connection counts as broken; the server pings every 15
            s.
    """

    attempts: int | None = None
    first: float = 0.4
    longest: float = 8.0
    patience: float = 60.0
    claim: int = 30
    silence: float = 45.0

    def __post_init__(self) -> None:
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        refuse_misfits(given, _RETRY, "Retry: ")
