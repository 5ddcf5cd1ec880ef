"""Models of what an editor sends, and how its content blocks become a message. Pure.

The names are those of the Agent Client Protocol, version 1. Unknown fields are ignored.
"""

import json
import re
from pathlib import PurePosixPath, PureWindowsPath
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, JsonValue

from passback.core.errors import InvalidRequest
from passback.core.messages import Content, DataPart, MediaPart, Part, TextPart
from passback.core.toolsets import ToolServer
from passback.http.requests import validate_model
from passback.native.parts import MAX_ITEMS, Posted, PostedMedia, check_content, read_media

_MAX_SERVERS = 32  # MCP servers of one session
_MAX_DIRECTORIES = 100
_PATH_CHARACTERS = 4096
_URI_CHARACTERS = 64 * 1024  # of a link


def _check_absolute(path: str) -> str:
    # the editor may run on another system than the server
    if not (PurePosixPath(path).is_absolute() or PureWindowsPath(path).is_absolute()):
        raise ValueError("has to be an absolute path")
    return path


_Path: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=_PATH_CHARACTERS), AfterValidator(_check_absolute)
]
_Id: TypeAlias = Annotated[str, Field(min_length=1, max_length=256)]
_Words: TypeAlias = Annotated[str, Field(max_length=4096)]
# what is not an object, or not there, is an ability that the editor does not have
_Ability: TypeAlias = Annotated[bool, BeforeValidator(lambda given: isinstance(given, dict))]
_Flag: TypeAlias = Annotated[bool, BeforeValidator(lambda given: given is True)]


def _read_meta(given: JsonValue) -> JsonValue:
    return given if isinstance(given, dict) else {}


_Meta: TypeAlias = Annotated[dict[str, JsonValue], BeforeValidator(_read_meta)]

SentT = TypeVar("SentT", bound=BaseModel)


def _part(model: type[BaseModel]) -> BeforeValidator:
    """Read capabilities that are malformed as none: a client may have some that are newer."""

    def read(given: JsonValue | BaseModel) -> JsonValue | BaseModel:
        return given if isinstance(given, dict | model) else {}

    return BeforeValidator(read)


class FileAbilities(Posted):
    read_text_file: _Flag = False
    write_text_file: _Flag = False


class ElicitationAbilities(Posted):
    form: _Ability = False


class SessionAbilities(Posted):
    notices: _Ability = False
    compaction: _Ability = False


class ClientAbilities(Posted):
    """Abilities of the editor (`clientCapabilities`): what is left out it cannot do."""

    fs: Annotated[FileAbilities, _part(FileAbilities)] = FileAbilities()
    terminal: _Flag = False
    elicitation: Annotated[ElicitationAbilities, _part(ElicitationAbilities)] = (
        ElicitationAbilities()
    )
    session: Annotated[SessionAbilities, _part(SessionAbilities)] = SessionAbilities()


class Initialize(Posted):
    protocol_version: Annotated[int, Field(ge=0, le=65535)]
    client_capabilities: Annotated[ClientAbilities, _part(ClientAbilities)] = ClientAbilities()


class Authenticate(Posted):
    """The key may be in `_meta`, as `apiKey`."""

    method_id: _Id
    meta: Annotated[_Meta, Field(alias="_meta")] = {}

    @property
    def api_key(self) -> str | None:
        key = self.meta.get("apiKey")
        return key if isinstance(key, str) else None


class NoParameters(Posted):
    pass


class Variable(Posted):
    name: Annotated[str, Field(min_length=1, max_length=256)]
    value: Annotated[str, Field(max_length=64 * 1024)]


class Server(Posted):
    """An MCP server that the editor gives. Without `type` it is a command."""

    type: str | None = None
    name: Annotated[str, Field(min_length=1, max_length=256)]
    command: Annotated[str, Field(min_length=1, max_length=_PATH_CHARACTERS)] = ""
    args: Annotated[list[_Words], Field(max_length=1000)] | None = None
    env: Annotated[list[Variable], Field(max_length=1000)] | None = None


_Servers: TypeAlias = Annotated[list[Server], Field(fail_fast=True, max_length=_MAX_SERVERS)]
_Directories: TypeAlias = Annotated[list[_Path], Field(max_length=_MAX_DIRECTORIES)]


class NewSession(Posted):
    """A new session. Tools of its own an editor declares in `_meta`, as `passback.tools`."""

    cwd: _Path
    mcp_servers: _Servers
    additional_directories: _Directories | None = None
    meta: Annotated[_Meta, Field(alias="_meta")] = {}

    @property
    def tools(self) -> list[JsonValue]:
        """The declarations of the editor's own tools.

        Raises:
            InvalidRequest: they are no list.
        """
        ours = self.meta.get("passback")
        tools = ours.get("tools") if isinstance(ours, dict) else None
        if tools is None:
            return []
        if not isinstance(tools, list):
            raise InvalidRequest("_meta.passback.tools: Input should be a list of tools")
        return tools


class LoadSession(NewSession):
    session_id: _Id


class ResumeSession(LoadSession):
    mcp_servers: _Servers = []


class OfSession(Posted):
    session_id: _Id


class ListSessions(Posted):
    cwd: _Path | None = None
    cursor: Annotated[str, Field(max_length=256)] | None = None


class SetMode(OfSession):
    mode_id: _Id


class SetOption(OfSession):
    config_id: _Id
    value: JsonValue


class CancelRequest(Posted):
    request_id: int | str


class TextBlock(Posted):
    type: Literal["text"]
    text: str


class MediaBlock(Posted):
    """An image or a sound. `data` is base64."""

    type: Literal["image", "audio"]
    data: str
    mime_type: str


class LinkBlock(Posted):
    """A file that the editor names and does not send. The model sees name and address only."""

    type: Literal["resource_link"]
    uri: Annotated[str, Field(max_length=_URI_CHARACTERS)]
    name: _Words


class Resource(Posted):
    uri: _Words
    mime_type: Annotated[str, Field(max_length=128)] | None = None
    text: str | None = None
    blob: str | None = None


class ResourceBlock(Posted):
    """A file that the editor sends, as text or in base64."""

    type: Literal["resource"]
    resource: Resource


_Block: TypeAlias = Annotated[
    TextBlock | MediaBlock | LinkBlock | ResourceBlock, Field(discriminator="type")
]


class Prompt(OfSession):
    prompt: Annotated[list[_Block], Field(fail_fast=True, min_length=1, max_length=MAX_ITEMS)]


def read_params(model: type[SentT], params: JsonValue, /) -> SentT:
    """Return the parameters of a method as its model. Raise InvalidRequest if they do not fit."""
    if params is None:
        params = {}
    if not isinstance(params, dict):
        raise InvalidRequest("params: Input should be an object")
    return validate_model(model, params)


def read_server(server: Server, cwd: str, /) -> ToolServer:
    """Return an MCP server as a command to start.

    Raises:
        InvalidRequest: it is reached in another way than as a command, or has none.
    """
    if server.type not in {None, "stdio"}:
        raise InvalidRequest(
            "mcpServers: only servers that are started as a command are supported "
            "(mcpCapabilities has neither http nor sse)"
        )
    if not server.command:
        raise InvalidRequest("mcpServers: a server needs a command")
    environment = {each.name: each.value for each in server.env or ()}
    return ToolServer(server.name, (server.command, *(server.args or ())), environment, cwd)


def read_prompt(prompt: Prompt, most: int, /) -> Content:
    """Return the content of a prompt.

    Raises:
        AttachmentTooLarge: its inline media have more than `most` bytes together.
        InvalidRequest: nothing is left, or data is malformed or not of its declared type.
    """
    parts = tuple(_read_block(block, at) for at, block in enumerate(prompt.prompt))
    match parts:
        case (TextPart(text),):
            return check_content(text, most)
        case _:
            return check_content(parts, most)


def _read_block(block: Any, at: int) -> Part:
    match block:
        case TextBlock(text=text):
            return TextPart(text)
        case LinkBlock():
            return TextPart(_link_text(block))
        case ResourceBlock(resource=Resource(text=str(text)) as file):
            return TextPart(_file_text(file.uri, text))
        case ResourceBlock(resource=Resource(blob=str(blob)) as file):
            return _read_media("file", blob, file.mime_type, at, name=file.uri[-256:])
        case MediaBlock():
            return _read_media(block.type, block.data, block.mime_type, at)
        case _:
            raise InvalidRequest(f"prompt.{at}.resource: Input should have text, or blob")


def _read_media(kind: str, data: str, mime: str | None, at: int, name: str | None = None) -> Part:
    media: dict[str, JsonValue] = {
        "type": kind,
        "data": data,
        "mediaType": mime or "application/octet-stream",
        "name": name,
    }
    try:
        return read_media(validate_model(PostedMedia, media))
    except InvalidRequest:
        raise InvalidRequest(
            f"prompt.{at}: the data has to be base64, and its type a plain word"
        ) from None


_QUOTE = '"'
_FILE = re.compile(r'<file uri="([^"\n]*)">\n(.*)\n</file>', re.DOTALL)
_LINK = re.compile(r"\[@([^\]\n]*)\]\(([^)\n]*)\)")


def _file_text(uri: str, text: str) -> str:
    inner = re.sub(r"(?i)<(?=/?file\b)", "< ", text)
    return f'<file uri="{_escaped(uri, _QUOTE)}">\n{inner}\n</file>'


def _link_text(link: LinkBlock) -> str:
    name, uri = _escaped(link.name, "]"), _escaped(link.uri, ")")
    return f"[@{name}]({uri})"


def _escaped(text: str, end: str) -> str:
    return text.replace(end, f"%{ord(end):02X}").replace("\n", "%0A")


def show_part(part: Part | str, /) -> dict[str, Any]:
    """Return a part of a user's message as the block that it was, or the nearest there is."""
    match part:
        case MediaPart("image" | "audio" as kind, url) if url.startswith("data:"):
            head, _, data = url.partition(",")
            mime = head.removeprefix("data:").partition(";")[0]
            return {"type": kind, "data": data, "mimeType": mime or "text/plain"}
        case MediaPart(_, url, media_type, name):
            if url.startswith("data:"):
                return text_block(f"[{name or media_type or 'attached file'}]")
            return {"type": "resource_link", "uri": url, "name": name or url}
        case str():
            return _show_text(part)
        case DataPart(data):
            return text_block(json.dumps(data, ensure_ascii=False))
        case _:
            return _show_text(part.text)


def _show_text(text: str) -> dict[str, Any]:
    if (file := _FILE.fullmatch(text)) is not None:
        return {"type": "resource", "resource": {"uri": file[1], "text": file[2]}}
    if (link := _LINK.fullmatch(text)) is not None:
        return {"type": "resource_link", "name": link[1], "uri": link[2]}
    return text_block(text)


def text_block(text: str, /) -> dict[str, Any]:
    """Return a content block of text."""
    return {"type": "text", "text": text}
