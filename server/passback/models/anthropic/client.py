"""The client of the Messages API."""

from dataclasses import replace

import httpx
from typing_extensions import override

from passback.core.deltas import ModelRequest
from passback.core.messages import MediaPart
from passback.models.anthropic.content import objection
from passback.models.anthropic.decoding import MessageDecoder
from passback.models.anthropic.encoding import encode
from passback.models.anthropic.outputs import OLDER_MODELS
from passback.models.http.bounds import Bounds
from passback.models.http.client import Encoded, HttpModel, Service, settled
from passback.models.http.decoding import Decoder
from passback.models.http.exchanges import Headers, checked_key, checked_url, endpoint

DEFAULT_BASE_URL = "https://api.anthropic.com"

_VERSION = "2023-06-01"
_PROVIDER = "anthropic"
_LISTED = {"limit": "1000"}


class Anthropic(HttpModel):
    """A model behind Anthropic's Messages API, streamed.

    Args:
        model: the service's name of it.
        base_url: what `/v1/messages` is put behind.
        api_key: sent as `x-api-key`; None for services that take none.
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
        base = checked_url(base_url, "/messages", "/v1")
        key = checked_key(api_key)
        own = {"anthropic-version": _VERSION, **({"x-api-key": key} if key else {})}
        service = Service(
            name=f"anthropic:{model}",
            model=model,
            base=base,
            given=base_url,
            answers=endpoint(base, "v1/messages"),
            models=endpoint(base, "v1/models").copy_merge_params(_LISTED),
            headers=Headers(base, own),
        )
        super().__init__(service, bounds=bounds, transport=transport)
        self._model = model
        # another service's signatures mean nothing here, though it speaks the same protocol
        at_home = base.host == httpx.URL(DEFAULT_BASE_URL).host
        self._provider = _PROVIDER if at_home else f"{_PROVIDER}@{base.netloc.decode('ascii')}"
        self._takes_schemas = at_home and OLDER_MODELS.match(model) is None

    @override
    def encode(self, request: ModelRequest, /) -> Encoded:
        if not self._takes_schemas:  # it might refuse the whole request for it
            request = replace(request, output_schema=None)
        encoded = encode(self._model, self._provider, request)

        def decoder(whole: bool) -> Decoder:
            return MessageDecoder(
                self._provider, encoded.prefix, whole=whole, max_answer=self.bounds.max_answer
            )

        return Encoded(encoded.body, decoder)

    @override
    def refuses(self, part: MediaPart, /) -> str | None:
        return objection(part)


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
        ConfigurationError: no name, an address that is none, or Anthropic itself without a key.
    """
    bounds = settled(
        "anthropic", "Anthropic", name, base_url=base_url, api_key=api_key, timeout=timeout
    )
    return Anthropic(name, base_url=base_url or DEFAULT_BASE_URL, api_key=api_key, bounds=bounds)
