"""The errors of the client, one family.

    PassbackError           the base of all
      Refused               the server answered with an error
        Busy                409 conversation_busy: another run is in progress
        CursorExpired       410 cursor_expired: the run's log has lost its beginning
      Unreachable           no answer, or the connection broke too often
      BadAnswer             an answer that is not one of a passback server
      LimitExceeded         something exceeds a limit of this client
      RunFailed             the run ended with an error; raised by `ask` only
      BadSetup              a wrong address, key, tool or argument: nothing was sent

None contains the API key.
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
    """The base of all errors of this library.

    Attributes:
        code: stable, for programs: the server's own, or one of this library.
        message: for people.
        status: of the HTTP response, if there was one.
        retryable: whether the same request may succeed later.
        retry_after: seconds to wait before a retry, if the server sent them.
        request_id: of the request in the server's log.
        details: more facts from the server, for some codes.
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
    """Another run of the conversation is in progress. Use `on_busy` to queue or interrupt."""


class CursorExpired(Refused):
    """The log of the run has lost its beginning; `Client.messages` has the messages."""


class Unreachable(PassbackError):
    """No answer, or the connection broke, as often as `Retry` allows. The run, if there is one,
    goes on.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, code="unreachable", facts=Facts(retryable=True))


class BadAnswer(PassbackError):
    """An answer that is not one of a passback server, or that a proxy has changed.

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
    """Something exceeds one of `Limits`."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="limit_exceeded")


class RunFailed(PassbackError):
    """The run ended with this error; the conversation stays usable."""


class BadSetup(PassbackError):
    """An error of the program that uses this library."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="bad_setup")


def is_settled(error: PassbackError) -> bool:
    """Return True if the call is closed: another client has answered it, or it was given up."""
    return error.code in _SETTLED


def is_content_error(error: PassbackError) -> bool:
    """Return True if a part of the post caused it: the server may accept the rest."""
    return error.status in _UNFIT
