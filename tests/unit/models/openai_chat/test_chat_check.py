"""What is said of settings before the first message."""

import httpx
import pytest
import respx
from tests.unit.models.openai_chat.chat_service import (
    KEY,
    answering,
    client_of,
    ok,
    status,
)

from passback.core.errors import (
    ConfigurationError,
    ModelError,
    ModelRejected,
    ModelUnavailable,
)
from passback.models.openai_chat import create

pytestmark = pytest.mark.anyio


# ---------------------------------------------------------------- checking
def listing(*names: str) -> httpx.Response:
    return httpx.Response(200, json={"data": [{"id": name} for name in names]})


@pytest.mark.parametrize(
    "answer",
    [
        listing("gpt-test", "other"),
        listing("models/gpt-test"),
        listing("gpt-test:latest"),
        listing("gpt-test-20260102"),
        listing("openai/*"),
        listing(),
        status(404),
        status(405),
        status(501),
        httpx.Response(200, text="fine"),
        httpx.Response(200, json=["gpt-5"]),
        httpx.Response(200, json={"data": [1, {}]}),
    ],
)
async def test_a_service_that_has_the_model_or_tells_no_names_is_fine(
    answer: httpx.Response,
) -> None:
    service = answering(answer, answer, answer)
    async with client_of(service) as client:
        warnings = await client.check()
    has_names = "gpt-test" in answer.text or "*" in answer.text
    unlisted = "http://model.test/v1 has no list of models: whether it has this one was not checked"
    assert warnings == ([] if has_names else [unlisted])
    assert [str(call.request.url) for call in service.calls] == ["http://model.test/v1/models"]


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (status(401), ModelRejected, "http://model.test/v1 refuses the key, or wants one"),
        (status(403), ModelRejected, "does not allow this key"),
        (status(500), ModelUnavailable, "answers with the error 500"),
        (
            httpx.ConnectError(KEY),
            ModelUnavailable,
            "http://model.test/v1 cannot be reached",
        ),
        (ok(httpx.ReadError(KEY)), ModelUnavailable, "cannot be reached"),
        (
            listing("gpt-tests", "llama", "\x1b[2J" * 9),
            ModelRejected,
            "has no model 'gpt-test'; it has gpt-tests",
        ),
        (
            ok(httpx.ReadError(KEY), **{"content-encoding": "gzip"}),
            ModelRejected,
            "a content encoding that was not asked for",
        ),
        (listing("gpt-test:32b"), ModelRejected, "has no model 'gpt-test'; it has gpt-test:32b"),
        (listing("x", "y", "z", "w"), ModelRejected, "it has x, y, z"),
    ],
)
async def test_what_is_wrong_is_said_in_plain_words(
    answer: httpx.Response | Exception, kind: type[ModelError], words: str
) -> None:
    async with client_of(answering(answer)) as client:
        with pytest.raises(kind) as raised:
            await client.check()
    assert words in raised.value.message
    assert KEY not in raised.value.message


# ---------------------------------------------------------------- the base URL
RIGHT = "http://model.test/v1"


def serving(*, key_is_wrong: bool = False) -> respx.Router:
    """A service whose list is at its place, and that knows no other address."""
    router = respx.Router()
    models = router.get(f"{RIGHT}/models", headers={"authorization": f"Bearer {KEY}"})
    models.mock(httpx.Response(401) if key_is_wrong else listing("gpt-test"))
    router.route(host="model.test").respond(404, text="<h1>nothing here</h1>")
    return router


@pytest.mark.parametrize("key_is_wrong", [False, True])
@pytest.mark.parametrize(
    "given",
    [
        "http://model.test",
        "http://model.test/",
        "http://model.test/chat/completions",
        "http://model.test/v1/completions",
        "http://model.test/api/chat",
        "http://model.test?secret=x",
    ],
)
async def test_a_wrong_base_url_is_found_and_the_right_one_said(
    given: str, key_is_wrong: bool
) -> None:
    service = serving(key_is_wrong=key_is_wrong)
    async with client_of(service, given) as client:
        with pytest.raises(ModelRejected) as raised:
            await client.check()
    assert raised.value.message.endswith(
        f"has no list of models, and {RIGHT} has: set the base URL (PASSBACK_MODEL_BASE_URL) to {RIGHT}"
    )
    assert "secret" not in raised.value.message
    assert KEY not in raised.value.message
    assert len(service.calls) <= 4


async def test_a_base_url_with_more_than_it_needs_works_and_is_said() -> None:
    async with client_of(serving(), f"{RIGHT}/chat/completions/") as client:
        assert await client.check() == [
            f"the base URL (PASSBACK_MODEL_BASE_URL) has more than it needs: set it to {RIGHT}"
        ]


@pytest.mark.parametrize("status", [401, 403])
async def test_a_key_that_is_refused_everywhere_is_what_is_wrong(status: int) -> None:
    service = respx.Router()
    service.route().respond(status)
    async with client_of(service, "http://model.test") as client:
        with pytest.raises(
            ModelRejected, match=r"^http://model\.test (refuses the key|does not allow)"
        ):
            await client.check()


# ---------------------------------------------------------------- settings
async def test_a_client_is_made_from_settings() -> None:
    client = create("gpt-5", base_url=None, api_key=KEY)
    assert client.name == "openai:gpt-5"
    await client.aclose()


@pytest.mark.parametrize(
    ("name", "base_url", "api_key", "words"),
    [
        ("", None, KEY, "openai:NAME"),
        ("gpt-5", None, None, "OpenAI needs a key"),
        ("gpt-5", "", "", "OpenAI needs a key"),
        ("gpt-5", "model.test/v1", None, "https://host/v1"),
        ("gpt-5", "ftp://model.test/v1", None, "https://host/v1"),
        ("gpt-5", "http://user:pass@model.test/v1", None, "https://host/v1"),
        ("gpt-5", "http://model.test/v1#x", None, "https://host/v1"),
        ("gpt-5", "http://[::1/v1", None, "not a URL"),
        ("gpt-5", f"http://{'x' * 70}.test/v1", None, "not a URL"),
        ("gpt-5", None, "sk-\nx", "characters that no key has"),
        ("gpt-5", None, "sk-ä", "characters that no key has"),
    ],
)
async def test_settings_that_cannot_work_are_refused(
    name: str, base_url: str | None, api_key: str | None, words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        create(name, base_url=base_url, api_key=api_key)
