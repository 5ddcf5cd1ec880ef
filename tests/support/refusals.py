"""What the models' services would refuse in a request, each by its own rules."""

import json

from tests.support.anthropic_rules import breaches_of
from tests.support.pairing import violations_of

from passback.core.deltas import ModelRequest
from passback.models.anthropic.encoding import encode_message
from passback.models.openai_chat.encoding import encode_request


def refusals_of(request: ModelRequest) -> list[str]:
    """Nothing: every one of them takes it."""
    chat = json.loads(encode_request("m", "openai", request))
    message = json.loads(encode_message("m", "anthropic", request).body)
    return [*violations_of(chat["messages"]), *breaches_of(message)]
