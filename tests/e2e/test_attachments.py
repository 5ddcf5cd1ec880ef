"""Attachments at the default settings, with the demo model: what is taken, and what is too large for what."""

import base64

import pytest
from tests.support.wire import PATH, Client, Json, check_refusal, user

pytestmark = pytest.mark.anyio

MOST = 3 * 1024 * 1024
"""Bytes of a message's attachments."""


def _file(size: int) -> Json:
    return {
        "type": "file",
        "name": "a.bin",
        "mediaType": "application/octet-stream",
        "data": base64.b64encode(bytes(size)).decode(),
    }


async def test_the_demo_says_what_it_got(client: Client, conversation: str) -> None:
    photo = {"type": "image", "url": "https://example.com/cat.png"}
    answer = await client.post(
        conversation, user([_file(MOST), photo]), path=f"{PATH}?wait=true", include=[]
    )
    assert answer.json["text"].startswith(
        'I got a file "a.bin" (application/octet-stream, 3145728 bytes) and '
        "an image at https://example.com/cat.png. "
    )


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    ("size", "code"),
    [(MOST + 1, "attachment_too_large"), (MOST * 4 // 3, "attachment_too_large"), (MOST * 3 // 2, "body_too_large")],
)  # fmt: skip
async def test_an_attachment_that_is_somewhat_too_large_is_refused_as_one(
    client: Client, conversation: str, size: int, code: str
) -> None:
    body = {"conversationId": conversation, "messages": [user([_file(size)])]}
    refused = await client.http.post(PATH, json=body)
    check_refusal(refused, 413, code)
    setting = {
        "attachment_too_large": "attachment_bytes in PASSBACK_LIMITS",
        "body_too_large": "body_bytes in PASSBACK_LIMITS",
    }
    assert setting[code] in refused.json()["message"]
    assert (await client.http.get(f"/conversations/{conversation}")).status_code == 404
