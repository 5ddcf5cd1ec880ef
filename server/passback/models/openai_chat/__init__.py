"""The client of OpenAI's chat completions API, and of services that speak it.

Among them are vLLM, Ollama, llama.cpp, DeepSeek and LiteLLM.
"""

from functools import partial

import httpx
from typing_extensions import override

from passback.core.deltas import ModelRequest
from passback.core.messages import MediaPart
from passback.models.http.client import EncodedRequest, HttpModel
from passback.models.http.service import (
    Bounds,
    RequestHeaders,
    ServiceEndpoint,
    checked_bounds,
    checked_key,
    checked_url,
    endpoint,
)
from passback.models.openai_chat.decoding import ChatDecoder
from passback.models.openai_chat.encoding import attachment_objection, encode_request

__all__ = ["Bounds", "OpenAIChat", "create"]

DEFAULT_BASE_URL = "https://api.openai.com/v1"


class OpenAIChat(HttpModel):
    """A model behind OpenAI's chat completions API, with streamed answers.

    Args:
        model: the service's own name of the model.
        base_url: the address that `/chat/completions` is appended to.
        api_key: the bearer token; None for services that take none.
        bounds: timeouts, retries and sizes.
        transport: an httpx transport to use instead of the usual one, for a proxy or certificates
            that the environment does not name, or a test. It is closed with the client.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = DEFAULT_BASE_URL,
        api_key: str | None = None,
        bounds: Bounds | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        base = checked_url(base_url, "/chat/completions")
        key = checked_key(api_key)
        service = ServiceEndpoint(
            name=f"openai:{model}",
            model=model,
            base=base,
            given=base_url,
            answers_url=endpoint(base, "chat/completions"),
            models_url=endpoint(base, "models"),
            headers=RequestHeaders({"Authorization": f"Bearer {key}"} if key else {}),
        )
        super().__init__(service, bounds=bounds, transport=transport)
        self._model = model
        self._provider = service.name

    @override
    def encode(self, request: ModelRequest, /) -> EncodedRequest:
        decoder = partial(ChatDecoder, self._provider, max_answer=self.bounds.max_answer)
        return EncodedRequest(encode_request(self._model, self._provider, request), decoder)

    @override
    def refuses(self, part: MediaPart, /) -> str | None:
        return attachment_objection(part)


def create(
    name: str,
    /,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    timeout: float | None = None,
) -> OpenAIChat:
    """Make the client for a setting: `openai:NAME`.

    Raises:
        ConfigurationError: there is no name, the address is not a URL, or OpenAI's own service has
            no key.
    """
    bounds = checked_bounds(
        "openai", "OpenAI", name, base_url=base_url, api_key=api_key, timeout=timeout
    )
    return OpenAIChat(name, base_url=base_url or DEFAULT_BASE_URL, api_key=api_key, bounds=bounds)
