"""The errors of the client, one family.

    PassbackError           all of it
      Refused               the server answered with an error
        Busy                409 conversation_busy: another run goes on
        CursorExpired       410 cursor_expired: the run's log has lost its beginning
      Unreachable           no answer, or the connection broke too often
      BadAnswer             an answer that is not of this protocol
      LimitExceeded         an answer larger than this client accepts
      RunFailed             the run ended with an error; raised by `ask` only
      BadSetup              a wrong address, key, tool or argument: nothing was sent

No text of these holds the API key.
"""

from dataclasses import dataclass

from pydantic import JsonValue

_SETTLED = frozenset({"tool_call_not_found", "tool_result_conflict"})
_UNFIT = frozenset({400, 413, 422})


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of an error beside its text."""

    status: int | None = None
    retryable: bool = False
    retry_after: float | None = None
    request_id: str | None = None
    details: JsonValue = None


class PassbackError(Exception):
    """Attributes tell what happened.

    Attributes:
        code: stable, for programs: the server's own, or one of this library.
        message: for people.
        status: of the HTTP answer, where there was one.
        retryable: the same may succeed later.
        retry_after: seconds after which, where the server said so.
        request_id: by which the server's log knows it.
        details: more, for some codes, as the server tells it.
    """

    def __init__(self, message: str, *, code: str, facts: Facts | None = None) -> None:
        super().__init__(message)
        facts = facts or Facts()
        self.code = code
        self.message = message
        self.status = facts.status
        self.retryable = facts.retryable
        self.retry_after = facts.retry_after
        self.request_id = facts.request_id
        self.details = facts.details


class Refused(PassbackError):
    """The server answered with an error; but for a 503, nothing was stored."""


class Busy(Refused):
    """Another run of the conversation goes on. `on_busy` says what should happen instead."""


class CursorExpired(Refused):
    """The log of the run has lost its beginning; `Client.messages` has what was said."""


class Unreachable(PassbackError):
    """No answer, or the connection broke, as often as `Retry` allows. The run, if there is one,
    goes on.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, code="unreachable", facts=Facts(retryable=True))


class BadAnswer(PassbackError):
    """Something else than a passback server answered, or something between changed the answer.

    Where it was no answer of a passback server at all, `status` is its status.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retryable: bool = False,
        retry_after: float | None = None,
    ) -> None:
        facts = Facts(status=status, retryable=retryable, retry_after=retry_after)
        super().__init__(message, code="bad_answer", facts=facts)


class LimitExceeded(PassbackError):
    """One of `Limits` was reached."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="limit_exceeded")


class RunFailed(PassbackError):
    """The run ended with this error; the conversation stays usable."""


class BadSetup(PassbackError):
    """The program that uses this library has to be changed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="bad_setup")


def is_settled(error: PassbackError) -> bool:
    """True if a call is not owed any more: somebody else has answered it, or it was given up."""
    return error.code in _SETTLED


def is_unfit(error: PassbackError) -> bool:
    """True if one part of the post is refused: the server may take the rest without it."""
    return error.status in _UNFIT
