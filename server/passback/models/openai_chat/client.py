"""The client of chat completions."""

import httpx
from typing_extensions import override

from passback.core.deltas import ModelRequest
from passback.core.messages import MediaPart
from passback.models.http.bounds import Bounds
from passback.models.http.client import Encoded, HttpModel, Service, settled
from passback.models.http.decoding import Decoder
from passback.models.http.exchanges import Headers, checked_key, checked_url, endpoint
from passback.models.openai_chat.decoding import ChatDecoder
from passback.models.openai_chat.encoding import objection, request_body

DEFAULT_BASE_URL = "https://api.openai.com/v1"


class OpenAIChat(HttpModel):
    """A model behind OpenAI's chat completions, streamed.

    Args:
        model: the service's name of it.
        base_url: what `/chat/completions` is put behind.
        api_key: sent as a bearer token; None for services that take none.
        bounds: of time and size.
        transport: another way to the service: a proxy, certificates, a test. It is closed with the client.
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
        service = Service(
            name=f"openai:{model}",
            model=model,
            base=base,
            given=base_url,
            answers=endpoint(base, "chat/completions"),
            models=endpoint(base, "models"),
            headers=Headers(base, {"Authorization": f"Bearer {key}"} if key else {}),
        )
        super().__init__(service, bounds=bounds, transport=transport)
        self._model = model

    @override
    def encode(self, request: ModelRequest, /) -> Encoded:
        return Encoded(request_body(self._model, self.name, request), self._decoder)

    @override
    def refuses(self, part: MediaPart, /) -> str | None:
        return objection(part)

    def _decoder(self, whole: bool) -> Decoder:
        return ChatDecoder(self.name, whole=whole, max_answer=self.bounds.max_answer)


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
        ConfigurationError: no name, an address that is none, or OpenAI itself without a key.
    """
    bounds = settled("openai", "OpenAI", name, base_url=base_url, api_key=api_key, timeout=timeout)
    return OpenAIChat(name, base_url=base_url or DEFAULT_BASE_URL, api_key=api_key, bounds=bounds)
