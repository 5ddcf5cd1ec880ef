"""A model's service as the settings name it: addresses, headers, bounds, and their checks."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

import httpx

from passback.core.errors import ConfigurationError, ModelError
from passback.core.values import value
from passback.models.http.decoding import MAX_ANSWER

_jitter = random.SystemRandom()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Times in seconds.

    Attributes:
        connect_timeout: the longest time to open a connection.
        content_timeout: the longest time without new content, before the answer or in it.
            Keep-alives are not content: silence is noticed at once, a stream of nothing but
            keep-alives when the next of them arrives.
        retries: the number of further attempts while nothing of the answer has arrived.
        retry_delay: the longest pause before the first retry; it doubles with each further one.
        max_retry_after: the longest `Retry-After` that is waited for. If a service asks for more,
            the request fails, and the error says for how long.
        max_answer: characters of one answer.
    """

    connect_timeout: float = 10.0
    content_timeout: float = 60.0
    retries: int = 2
    retry_delay: float = 0.5
    max_retry_after: float = 5.0
    max_answer: int = MAX_ANSWER

    def retry_pause(self, failure: ModelError, attempt: int, /) -> float | None:
        """Return the seconds to wait before the next attempt, or None if there is to be none.

        `attempt` is the number of the attempt that failed, counted from 0.
        """
        if attempt >= self.retries or not failure.retryable:
            return None
        if isinstance(failure.__cause__, httpx.ReadTimeout):
            return None  # the user has waited for a whole `content_timeout` already
        if failure.retry_after is not None:
            return failure.retry_after if failure.retry_after <= self.max_retry_after else None
        # Jitter: clients that failed together should not come back together.
        longest: float = self.retry_delay * 2**attempt
        return _jitter.uniform(longest / 2, longest)


class RequestHeaders:
    """The headers of every request of a client. Their repr shows none of them: one is the key."""

    def __init__(self, own: Mapping[str, str], /) -> None:
        self.raw = httpx.Headers(
            {
                "Accept": "text/event-stream, application/json",
                # an answer that is packed could unpack to any size
                "Accept-Encoding": "identity",
                "Content-Type": "application/json",
                "User-Agent": "passback",
                **own,
            }
        ).raw


@value
class ServiceEndpoint:
    """The addresses and headers of a model's service.

    Attributes:
        name: the client's name as people see it, with the model in it.
        model: the service's own name of the model.
        base: the base URL of the settings, without the path of a single request.
        given: the base URL as the settings give it.
        answers_url: the URL to post requests to.
        models_url: the URL of the list of models.
        headers: the headers of every request.
    """

    name: str
    model: str
    base: httpx.URL
    given: str
    answers_url: httpx.URL
    models_url: httpx.URL
    headers: RequestHeaders


def checked_url(text: str, *endings: str) -> httpx.URL:
    """Return a base URL, without the `endings` of the whole path to the model, taken off in turn.

    Raises:
        ConfigurationError: the text is not such a URL.
    """
    try:
        url = httpx.URL(text.strip())
        url.raw_host.decode("ascii").encode("idna")  # or the socket would refuse it
    except (httpx.InvalidURL, UnicodeError):
        raise ConfigurationError("the model's base URL is not a URL") from None
    if url.scheme not in {"http", "https"} or not url.host or url.userinfo or url.fragment:
        raise ConfigurationError("the model's base URL must look like https://host/v1")
    path = url.path.rstrip("/")
    for ending in endings:
        path = path.removesuffix(ending)
    return url.copy_with(path=path)


def endpoint(base: httpx.URL, path: str, /) -> httpx.URL:
    return base.copy_with(path=f"{base.path.rstrip('/')}/{path}")


def checked_key(api_key: str | None, /) -> str:
    """Return the key as it is sent, empty if there is none.

    Raises:
        ConfigurationError: it has characters that cannot be sent.
    """
    key = (api_key or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ConfigurationError("the model's key has characters that no key has")
    return key


def checked_bounds(
    kind: str,
    owner: str,
    name: str,
    *,
    base_url: str | None,
    api_key: str | None,
    timeout: float | None,
) -> Bounds:
    """Check a setting such as `KIND:NAME`, and return the bounds that it gives.

    Without a base URL, the service is that of the kind's owner, who wants a key.

    Raises:
        ConfigurationError: there is no name, or no key for the owner's service.
    """
    if not name:
        raise ConfigurationError(f"the model needs a name: {kind}:NAME")
    if not base_url and not api_key:
        own = f"{owner.upper()}_API_KEY"
        raise ConfigurationError(f"{owner} needs a key ({own}); any other service needs a base URL")
    return Bounds() if timeout is None else Bounds(content_timeout=timeout)
