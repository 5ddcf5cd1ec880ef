"""What the models' services would refuse in a request, each by its own rules."""

import json

from tests.support.anthropic_rules import breaches_of
from tests.support.pairing import violations_of

from passback.core.deltas import ModelRequest
from passback.models.anthropic.encoding import encode
from passback.models.openai_chat.encoding import request_body


def refusals_of(request: ModelRequest) -> list[str]:
    """Nothing: every one of them takes it."""
    chat = json.loads(request_body("m", "openai", request))
    message = json.loads(encode("m", "anthropic", request).body)
    return [*violations_of(chat["messages"]), *breaches_of(message)]
