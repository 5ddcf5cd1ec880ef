"""The playground at `/`, the files beside it, and the JavaScript library that it uses.

The files are listed once at start and served from that list, so that no path can leave their
folders. Their URLs have the layout of the folders, so that imports between them work both here and
in a checkout.
"""

import logging
from pathlib import Path

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response

from passback.http.answers import SAFE_HEADERS, request_id
from passback.http.routing import Endpoint
from passback.http.wires import Services, Wire, WireType
from passback.native.openapi import REQUEST_ID_HEADER

logger = logging.getLogger(__name__)

_PACKAGE = Path(__file__).parent.parent
# in an installed package, in a checkout
_FILE_ROOTS = (_PACKAGE / "page", _PACKAGE.parent.parent / "client_tools")
_FILE_FOLDERS = ("playground", "playground/vendor", "js/src")

_HTML = "text/html; charset=utf-8"
_MEDIA_TYPES = {
    ".html": _HTML,
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}

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


WIRE = WireType(build)


def build_page(roots: tuple[Path, ...] = _FILE_ROOTS, /) -> Wire:
    """Return the wire that serves the files that exist at this moment; an empty one without."""
    files = read_page_files(roots)
    if not files:
        logger.warning("the playground's files are missing: no page is served")
    return Wire(
        # any query is accepted: sites add tracking parameters to links, and a made-up one
        # gets past a cache
        routes=[
            Endpoint(path, file.serve_file, methods=["GET"], query=None)
            for path, file in files.items()
        ],
        paths={"/": _DESCRIPTION} if "/" in files else {},
        public=frozenset(files),
    )


class File:
    """A static file, held in memory."""

    def __init__(self, content: bytes, media_type: str) -> None:
        self._content = content
        self._media_type = media_type

    async def serve_file(self, request: Request) -> Response:
        headers = {**_HEADERS, "x-request-id": request_id(request.scope)}
        return Response(self._content, headers=headers, media_type=self._media_type)


def read_page_files(roots: tuple[Path, ...]) -> dict[str, File]:
    """Read the files below the first root that has the page; return them by their URL paths."""
    index = Path("playground", "index.html")
    root = next((root for root in roots if (root / index).is_file()), None)
    if root is None:
        return {}
    files = {"/": File((root / index).read_bytes(), _HTML)}
    for folder in _FILE_FOLDERS:
        for file in sorted((root / folder).glob("*")):
            if file.suffix in _MEDIA_TYPES and file.is_file() and file != root / index:
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
