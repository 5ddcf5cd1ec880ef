"""A server of the Model Context Protocol written by hand, that does what a good one would not.

`python -m tests.support.mcp_raw LIST.json` serves by stdio; the list has pages, and each page
tools. `--silent` never answers, `--endless` gives the first page for ever, `--loud` writes lines
that are no messages, `--stays=PORT` connects to a port, notes there that it should end, and stays.
By HTTP it is `RawHttp`.
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

Json: TypeAlias = dict[str, Any]

CHANGED: Json = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


def tool(name: str, **more: object) -> Json:
    return {"name": name, "description": "", "inputSchema": {"type": "object"}, **more}


def answer(request: Json, result: Json) -> Json:
    return {"jsonrpc": "2.0", "id": request["id"], "result": result}


def refusal(request: Json, code: int, message: str) -> Json:
    error = {"code": code, "message": message}
    return {"jsonrpc": "2.0", "id": request["id"], "error": error}


def said(text: str) -> Json:
    return {"content": [{"type": "text", "text": text}]}


class Raw:
    """Speaks the older protocol only, in which a session begins with `initialize`."""

    tells_of_changes = True

    def __init__(self, pages: list[list[Json]], *, endless: bool = False) -> None:
        self.pages = pages
        self._endless = endless
        self.instructions: str | None = None
        """Instructions for the use of its tools."""

    def answers(self, request: Json) -> Iterator[Json]:
        """Yield the answers to a message; none to a notification."""
        if "id" not in request:
            return
        match request["method"]:
            case "initialize":
                yield answer(request, self._welcome())
            case "tools/list":
                yield answer(request, self._page(request))
            case "tools/call":
                yield from self._called(request, request["params"])
            case other:
                yield refusal(request, -32601, f"no method {other}")

    def _welcome(self) -> Json:
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {"listChanged": self.tells_of_changes}},
            "serverInfo": {"name": "raw", "version": "1"},
            **({} if self.instructions is None else {"instructions": self.instructions}),
        }

    def _page(self, request: Json) -> Json:
        number = int((request.get("params") or {}).get("cursor") or 0)
        following = 0 if self._endless else number + 1
        more = self._endless or following < len(self.pages)
        return {"tools": self.pages[number], **({"nextCursor": str(following)} if more else {})}

    def _called(self, request: Json, params: Json) -> Iterator[Json]:
        match params["name"]:
            case "grow":
                self.pages[0].append(tool("grown"))
                yield CHANGED
                yield answer(request, said("grown"))
            case "flood":
                yield answer(request, said("x" * 5_000_000))
            case "deaf":
                os.close(0)  # before the answer: what is sent behind that would lie in the pipe
                yield answer(request, said("deaf"))
                signal.pause()
            case "nonsense":
                yield answer(request, {"content": 5})
            case "refuse":
                yield refusal(request, -32000, f"no, {os.environ.get('TOKEN')}")
            case name:
                yield answer(request, said(name))


def main(arguments: list[str]) -> None:
    if "--silent" in arguments:
        sys.stdin.read()
        return
    if "--loud" in arguments:
        sys.stdout.write("Welcome!\n\n{}\n")
    raw = Raw(json.loads(Path(arguments[0]).read_text()), endless="--endless" in arguments)
    ports = [each.partition("=")[2] for each in arguments if each.startswith("--stays=")]
    lines = [socket.create_connection(("127.0.0.1", int(port))) for port in ports]
    for line in lines:
        signal.signal(signal.SIGTERM, lambda *_, line=line: line.send(b"terminated, "))
    for text in sys.stdin:
        for each in raw.answers(json.loads(text)):
            sys.stdout.write(json.dumps(each) + "\n")
            sys.stdout.flush()
    for line in lines:
        line.send(b"input ended, ")
        while True:
            signal.pause()


class RawHttp(Raw):
    """An HTTP server with sessions that it may forget; `asked` has methods and names."""

    tells_of_changes = False

    def __init__(self, pages: list[list[Json]]) -> None:
        super().__init__(pages)
        self.asked: list[str] = []
        self.session = 1
        self.refuses = 0
        """A status with which everything is refused."""
        self.forgets = False
        """True if the session is forgotten whenever a tool is called."""
        self.encoding = "identity"
        """The content encoding that its answers claim."""
        self.app = Starlette(routes=[Route("/mcp", self._post, methods=["POST"])])

    async def _post(self, request: Request) -> Response:
        message: Json = await request.json()
        method: str = message["method"]
        params: Json = message.get("params") or {}
        self.asked.append(" ".join(filter(None, (method, params.get("name")))))
        given = request.headers.get("mcp-session-id")
        if self.forgets and method == "tools/call":
            self.session += 1
        if self.refuses:
            return Response("No.", self.refuses)
        if given is not None and given != str(self.session):
            return Response("Who are you?", 404)
        answers = [each for each in self.answers(message) if "id" in each]
        if not answers:
            return Response(status_code=202)
        headers = {"mcp-session-id": str(self.session)} if method == "initialize" else {}
        return JSONResponse(answers[0], headers=headers | {"content-encoding": self.encoding})


if __name__ == "__main__":
    main(sys.argv[1:])
