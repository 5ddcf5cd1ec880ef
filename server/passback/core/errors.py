"""The error tree. `code` is stable and public; `http/answers.py` gives it a status.

PassbackError
├── ClientError                 wrong request; nothing was stored, a repeat fails the same way
│   ├── BadRequest              bad_request              the body or a parameter cannot be read
│   │   ├── BodyTooLarge        body_too_large
│   │   ├── HeadersTooLarge     headers_too_large
│   │   ├── UnsupportedMedia    unsupported_media_type
│   │   └── RequestTimeout      request_timeout          the body did not arrive in time
│   ├── NotAcceptable           not_acceptable           no form of this answer is accepted
│   ├── UpgradeRequired         upgrade_required         the address is only for WebSockets
│   ├── InvalidRequest          invalid_request          readable, but a value is not allowed
│   │   ├── InvalidTool         invalid_tool             a declared client tool is malformed
│   │   ├── ToolNameClash       tool_name_clash          two tools share a name
│   │   ├── InvalidOutputSchema invalid_output_schema    no JSON Schema that is supported here
│   │   ├── DataTooLarge        data_too_large           a post's structured data
│   │   ├── AttachmentTooLarge  attachment_too_large     the inline attachments of a message
│   │   ├── MessageTooLarge     message_too_large        larger than the model's context window
│   │   ├── HistoryTooLarge     history_too_large        the conversation would be too large to load
│   │   ├── UnsupportedAttachment unsupported_attachment the agent's model cannot take it
│   │   ├── NothingToDo         nothing_to_do            no message, nothing to resume
│   │   ├── ResultTooLarge      result_too_large         the result of a client tool's call
│   │   ├── UnknownCommand      unknown_command          a text that looks like a slash command
│   │   ├── UnknownModel        unknown_model            not one of those that a post may choose
│   │   ├── InvalidAnswer       invalid_answer           the answer does not fit the question
│   │   ├── InvalidCursor       invalid_cursor           malformed, of another run, or past the end
│   │   └── Reused              reused                   a key or message id, with other content
│   ├── NotFound                not_found
│   │   ├── UnknownConversation conversation_not_found
│   │   ├── UnknownAgent        agent_not_found          the server has no agent of this name
│   │   ├── UnknownRun          run_not_found            no such run, or its log has expired
│   │   ├── UnknownToolCall     tool_call_not_found      no such call in this owner's conversation
│   │   ├── UnknownMessage      message_not_found        no such message in this conversation
│   │   └── CursorExpired       cursor_expired           the start of the log was trimmed
│   ├── Conflict                conflict
│   │   ├── ConversationBusy    conversation_busy        a run is going on; try again later
│   │   ├── QueueFull           queue_full               too many posts wait; try again later
│   │   ├── TooManyRuns         too_many_runs            of one owner at once; try again later
│   │   ├── TooManySockets      too_many_sockets         of one owner at once; close one
│   │   ├── ResultConflict      tool_result_conflict     the call has an answer with other content
│   │   └── CallClaimed         call_claimed             by another client; try again later
│   └── Refused                 refused
│       ├── Unauthenticated     unauthenticated
│       ├── KeysNeeded          keys_needed              without API keys all share one owner
│       ├── NotAllowed          not_allowed              the server's operator does not allow it
│       ├── ForeignHost         foreign_host             a Host header not allowed (DNS rebinding)
│       └── ForeignOrigin       foreign_origin           a browser page of another origin
├── StoreError                  store_error              the store answered with an error
│   ├── StoreUnavailable        store_unavailable        the store cannot be reached in time
│   ├── StoreFull               store_full               the store has no room left
│   └── LeaseLost               lease_lost               another worker owns the run
├── ModelError                  model_error              the model's service failed
│   ├── ModelUnavailable        model_unavailable        refused, 5xx, overloaded, timed out
│   ├── ModelRateLimited        model_rate_limited
│   ├── ModelRejected           model_rejected           it refused the request or the credentials
│   ├── ModelContextExceeded    model_context_exceeded   the request is too long for it
│   ├── ModelIncomplete         model_incomplete         its answer broke off or makes no sense
│   ├── ModelAstray             model_astray             invalid calls only, in turn after turn
│   └── OutputInvalid           output_invalid           answers never fitted the output schema
├── ToolsetUnavailable          toolset_unavailable      a source of server tools cannot be used
├── ContextTooLarge             context_too_large        the request does not fit the model's window
├── RunLost                     lost                     the workers of a run died before its end
├── ServerBusy                  server_busy              no room for the request; try again later
├── SchemasBusy                 schemas_busy             no check of schemas in time; try again
├── ShuttingDown                shutting_down            this worker takes no new runs
└── ConfigurationError          configuration_error      settings that cannot work; fatal at start

A run that ends `Failed` has one of these codes; `internal` is the root's.
"""

from collections.abc import Sequence
from typing import ClassVar


class PassbackError(Exception):
    """Root of the tree.

    Args:
        message: one sentence for the reader of the answer; never a secret, never a text from
            elsewhere.
        retry_after: seconds after which a repeat may succeed.
        details: small, JSON-able, safe to show.
    """

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        /,
        *,
        retry_after: float | None = None,
        details: dict[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after = retry_after
        self.details = details or {}


class ClientError(PassbackError):
    code = "client_error"


class BadRequest(ClientError):
    code = "bad_request"


class BodyTooLarge(BadRequest):
    code = "body_too_large"


class HeadersTooLarge(BadRequest):
    code = "headers_too_large"


class UnsupportedMedia(BadRequest):
    code = "unsupported_media_type"


class RequestTimeout(BadRequest):
    code = "request_timeout"
    retryable = True


class NotAcceptable(ClientError):
    code = "not_acceptable"


class UpgradeRequired(ClientError):
    code = "upgrade_required"


class InvalidRequest(ClientError):
    code = "invalid_request"


class InvalidTool(InvalidRequest):
    code = "invalid_tool"


class ToolNameClash(InvalidRequest):
    code = "tool_name_clash"


class InvalidOutputSchema(InvalidRequest):
    code = "invalid_output_schema"


class DataTooLarge(InvalidRequest):
    code = "data_too_large"


class AttachmentTooLarge(InvalidRequest):
    code = "attachment_too_large"


class MessageTooLarge(InvalidRequest):
    code = "message_too_large"


class HistoryTooLarge(InvalidRequest):
    code = "history_too_large"


class UnsupportedAttachment(InvalidRequest):
    code = "unsupported_attachment"


class NothingToDo(InvalidRequest):
    code = "nothing_to_do"


class ResultTooLarge(InvalidRequest):
    code = "result_too_large"


class UnknownCommand(InvalidRequest):
    code = "unknown_command"


class UnknownModel(InvalidRequest):
    code = "unknown_model"


class InvalidAnswer(InvalidRequest):
    code = "invalid_answer"


class InvalidCursor(InvalidRequest):
    code = "invalid_cursor"


class Reused(InvalidRequest):
    code = "reused"


class NotFound(ClientError):
    code = "not_found"


class UnknownConversation(NotFound):
    code = "conversation_not_found"


class UnknownAgent(NotFound):
    code = "agent_not_found"


class UnknownRun(NotFound):
    code = "run_not_found"


class UnknownToolCall(NotFound):
    code = "tool_call_not_found"


class UnknownMessage(NotFound):
    code = "message_not_found"


TRIMMED = "the log's beginning was trimmed; the messages are all there"
"""What a `CursorExpired` says."""


class CursorExpired(NotFound):
    code = "cursor_expired"


class Conflict(ClientError):
    code = "conflict"


class ConversationBusy(Conflict):
    code = "conversation_busy"
    retryable = True


class QueueFull(Conflict):
    code = "queue_full"
    retryable = True


class TooManyRuns(Conflict):
    code = "too_many_runs"
    retryable = True


class TooManySockets(Conflict):
    code = "too_many_sockets"
    retryable = True


class ResultConflict(Conflict):
    code = "tool_result_conflict"


class CallClaimed(Conflict):
    code = "call_claimed"
    retryable = True


class Refused(ClientError):
    code = "refused"


class Unauthenticated(Refused):
    code = "unauthenticated"


class KeysNeeded(Refused):
    code = "keys_needed"


class NotAllowed(Refused):
    code = "not_allowed"


class ForeignHost(Refused):
    code = "foreign_host"


class ForeignOrigin(Refused):
    code = "foreign_origin"


class StoreError(PassbackError):
    code = "store_error"
    retryable = True


class StoreUnavailable(StoreError):
    code = "store_unavailable"


class StoreFull(StoreError):
    code = "store_full"


class LeaseLost(StoreError):
    code = "lease_lost"


class ModelError(PassbackError):
    code = "model_error"


class ModelUnavailable(ModelError):
    code = "model_unavailable"
    retryable = True


class ModelRateLimited(ModelError):
    code = "model_rate_limited"
    retryable = True


class ModelRejected(ModelError):
    code = "model_rejected"


class ModelContextExceeded(ModelError):
    code = "model_context_exceeded"


class ModelIncomplete(ModelError):
    code = "model_incomplete"
    retryable = True


class ModelAstray(ModelError):
    code = "model_astray"
    retryable = True


class OutputInvalid(ModelError):
    code = "output_invalid"
    retryable = True


class ToolsetUnavailable(PassbackError):
    """A source of server tools cannot be used.

    `said` are the last lines that a tool server wrote: for its operator, never in an answer or a
    log.
    """

    code = "toolset_unavailable"
    retryable = True

    def __init__(self, message: str, /, *, said: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.said = said


class ContextTooLarge(PassbackError):
    code = "context_too_large"


class RunLost(PassbackError):
    code = "lost"
    retryable = True


class ServerBusy(PassbackError):
    code = "server_busy"
    retryable = True


class SchemasBusy(PassbackError):
    code = "schemas_busy"
    retryable = True


class ShuttingDown(PassbackError):
    code = "shutting_down"
    retryable = True


class ConfigurationError(PassbackError):
    code = "configuration_error"
