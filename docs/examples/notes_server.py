"""A server of the Model Context Protocol that keeps notes."""

from mcp.server import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("notes")
notes: list[str] = []


@server.tool()
def add_note(text: str) -> str:
    """Keep a note."""
    notes.append(text)
    return f"Kept as number {len(notes)}."


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def find_notes(word: str) -> list[str]:
    """All notes with a word in them."""
    return [note for note in notes if word in note]


if __name__ == "__main__":
    server.run()
