"""The client of OpenAI's Responses API, and of services that speak it (Open Responses)."""

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
from passback.models.openai_responses.decoding import ResponseDecoder
from passback.models.openai_responses.encoding import attachment_objection, encode_response

__all__ = ["Bounds", "OpenAIResponses", "create"]

DEFAULT_BASE_URL = "https://api.openai.com/v1"


class OpenAIResponses(HttpModel):
    """A model behind OpenAI's Responses API, with streamed answers that the service does not keep.

    Args:
        model: the service's own name of the model.
        base_url: the address that `/responses` is appended to.
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
        base = checked_url(base_url, "/responses")
        key = checked_key(api_key)
        service = ServiceEndpoint(
            name=f"openai-responses:{model}",
            model=model,
            base=base,
            given=base_url,
            answers_url=endpoint(base, "responses"),
            models_url=endpoint(base, "models"),
            headers=RequestHeaders({"Authorization": f"Bearer {key}"} if key else {}),
        )
        super().__init__(service, bounds=bounds, transport=transport)
        self._model = model
        # What one service has encrypted another one of the same protocol refuses, so it counts as
        # another provider.
        at_home = base.host == httpx.URL(DEFAULT_BASE_URL).host
        place = "" if at_home else f"@{base.netloc.decode('ascii')}"
        self._provider = f"{service.name}{place}"

    @override
    def encode(self, request: ModelRequest, /) -> EncodedRequest:
        decoder = partial(ResponseDecoder, self._provider, max_answer=self.bounds.max_answer)
        return EncodedRequest(encode_response(self._model, self._provider, request), decoder)

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
) -> OpenAIResponses:
    """Make the client for a setting: `openai-responses:NAME`.

    Raises:
        ConfigurationError: there is no name, the address is not a URL, or OpenAI's own service has
            no key.
    """
    bounds = checked_bounds(
        "openai-responses", "OpenAI", name, base_url=base_url, api_key=api_key, timeout=timeout
    )
    return OpenAIResponses(
        name, base_url=base_url or DEFAULT_BASE_URL, api_key=api_key, bounds=bounds
    )
