"""The playground at `/`, and the JavaScript library that it uses.

Static files by an allow-list made at start, so that no path can lead elsewhere. Their addresses are as their folders lie
to each other, so that the imports mean the same here and in a checkout.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response

from passback.http.answers import SAFE_HEADERS, request_id
from passback.http.routing import Endpoint
from passback.http.wires import Services, Wire
from passback.native.openapi import REQUEST_ID_HEADER

logger = logging.getLogger(__name__)

_PACKAGE = Path(__file__).parent.parent
_FILE_ROOTS = (_PACKAGE / "page", _PACKAGE.parent.parent / "client_tools")
"""In an installed package, in a checkout."""
_FILE_FOLDERS = ("playground", "js/src")

_MEDIA_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HTML = "text/html; charset=utf-8"

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    **SAFE_HEADERS,
    "content-security-policy": _POLICY,
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}


def build(_: Services, /) -> Wire:
    return build_page()


def build_page() -> Wire:
    """Serve the files that are there now."""
    return wire_of(files_of(_FILE_ROOTS))


def wire_of(files: Mapping[str, "File"], /) -> Wire:
    """The page, or nothing where its files are missing."""
    if not files:
        logger.warning("the playground's files are missing: no page is served")
    return Wire(
        # links that lead to a page are lengthened on their way, and browsers are made to pass a cache by
        routes=[
            Endpoint(path, file.serve_file, methods=["GET"], query=None)
            for path, file in files.items()
        ],
        paths={"/": _DESCRIPTION} if "/" in files else {},
        public=frozenset(files),
    )


class File:
    def __init__(self, content: bytes, media_type: str) -> None:
        self._content = content
        self._media_type = media_type

    async def serve_file(self, request: Request) -> Response:
        headers = {**_HEADERS, "x-request-id": request_id(request.scope)}
        return Response(self._content, headers=headers, media_type=self._media_type)


def files_of(roots: tuple[Path, ...]) -> dict[str, File]:
    """The files below the first root that has the page, by their paths."""
    index = Path("playground", "index.html")
    root = next((root for root in roots if (root / index).is_file()), None)
    if root is None:
        return {}
    files = {"/": File((root / index).read_bytes(), _HTML)}
    for folder in _FILE_FOLDERS:
        for file in sorted((root / folder).glob("*")):
            if file.suffix in _MEDIA_TYPES and file.is_file():
                files[f"/{folder}/{file.name}"] = File(file.read_bytes(), _MEDIA_TYPES[file.suffix])
    return files


_DESCRIPTION: dict[str, JsonValue] = {
    "get": {
        "operationId": "getPage",
        "summary": "The playground, a web page; its files are beside it.",
        "responses": {
            "200": {
                "description": "The page.",
                "headers": dict(REQUEST_ID_HEADER),
                "content": {"text/html": {"schema": {"type": "string"}}},
            }
        },
    }
}
