"""The client of Anthropic's Messages API, and of services that speak it."""

from dataclasses import replace
from functools import partial

import httpx
from typing_extensions import override

from passback.core.deltas import ModelRequest
from passback.core.messages import MediaPart
from passback.models.anthropic.decoding import MessageDecoder
from passback.models.anthropic.encoding import attachment_objection, encode_message
from passback.models.anthropic.outputs import OLDER_MODELS
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

__all__ = ["Anthropic", "Bounds", "create"]

DEFAULT_BASE_URL = "https://api.anthropic.com"

_VERSION = "2023-06-01"
_PROVIDER = "anthropic"
_LIST_LIMIT = {"limit": "1000"}


class Anthropic(HttpModel):
    """A model behind Anthropic's Messages API, with streamed answers.

    Args:
        model: the service's own name of the model.
        base_url: the address that `/v1/messages` is appended to.
        api_key: the header `x-api-key`; None for services that take none.
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
        base = checked_url(base_url, "/messages", "/v1")
        key = checked_key(api_key)
        own = {"anthropic-version": _VERSION, **({"x-api-key": key} if key else {})}
        service = ServiceEndpoint(
            name=f"anthropic:{model}",
            model=model,
            base=base,
            given=base_url,
            answers_url=endpoint(base, "v1/messages"),
            models_url=endpoint(base, "v1/models").copy_merge_params(_LIST_LIMIT),
            headers=RequestHeaders(own),
        )
        super().__init__(service, bounds=bounds, transport=transport)
        self._model = model
        # Signed thoughts of another service with the same protocol are refused here, so it counts
        # as another provider.
        at_home = base.host == httpx.URL(DEFAULT_BASE_URL).host
        self._provider = _PROVIDER if at_home else f"{_PROVIDER}@{base.netloc.decode('ascii')}"
        self._takes_schemas = at_home and OLDER_MODELS.match(model) is None

    @override
    def encode(self, request: ModelRequest, /) -> EncodedRequest:
        if not self._takes_schemas:  # a service without the mode may refuse the whole request
            request = replace(request, output_schema=None)
        encoded = encode_message(self._model, self._provider, request)
        decoder = partial(
            MessageDecoder, self._provider, encoded.prefix, max_answer=self.bounds.max_answer
        )
        return EncodedRequest(encoded.body, decoder)

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
) -> Anthropic:
    """Make the client for a setting: `anthropic:NAME`.

    Raises:
        ConfigurationError: there is no name, the address is not a URL, or Anthropic's own service
            has no key.
    """
    bounds = checked_bounds(
        "anthropic", "Anthropic", name, base_url=base_url, api_key=api_key, timeout=timeout
    )
    return Anthropic(name, base_url=base_url or DEFAULT_BASE_URL, api_key=api_key, bounds=bounds)
