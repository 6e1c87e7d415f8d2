"""A server made with the official SDK: python server.py stdio, or python server.py http PORT [stateless]."""

import asyncio
import base64
import os
import sys
from pathlib import Path
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)

server = MCPServer("sample")
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
cancelled_once = asyncio.Event()


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int = 1) -> int:
    """Add two numbers. The second is 1 by default."""
    return a + b


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


@server.tool()
def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)


@server.tool()
def picture() -> Image:
    """Draw a picture."""
    return Image(data=PNG, format="png")


@server.tool(structured_output=False)
def mixed() -> CallToolResult:
    """Return every kind of content."""
    return CallToolResult(
        content=[
            TextContent(text="first"),
            ResourceLink(uri="file:///notes.txt", name="notes", description="Some notes"),
            EmbeddedResource(resource=TextResourceContents(uri="memo://1", text="the memo")),
            EmbeddedResource(
                resource=BlobResourceContents(
                    uri="file:///data/table.csv", mime_type="text/csv", blob=base64.b64encode(b"a,b\n1,2\n").decode()
                )
            ),
        ],
        structured_content={"count": 4},
    )


@server.tool()
async def slow(seconds: float, ctx: Context[Any, Any]) -> str:
    """Report progress and wait."""
    try:
        for step in range(4):
            await ctx.report_progress(step, 4, f"step {step}")
            await asyncio.sleep(seconds / 4)
    except asyncio.CancelledError:
        cancelled_once.set()
        raise
    return "done"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def cancelled() -> str:
    """Wait until a call of `slow` is cancelled."""
    await cancelled_once.wait()
    return "yes"


@server.tool()
async def grow(ctx: Context[Any, Any]) -> str:
    """Add a tool."""

    def grown(word: str) -> str:
        """Added later."""
        return word.upper()

    server.add_tool(grown)
    await ctx.notify_tools_changed()
    await ctx.session.send_tool_list_changed()
    return "grown"


@server.tool()
def environment() -> dict[str, str]:
    """The variables of the process."""
    return dict(os.environ)


@server.tool()
def read(path: str) -> str:
    """Read a file."""
    return Path(path).read_text()


@server.tool()
def user() -> int:
    """The user of the process."""
    return os.getuid()


@server.tool()
def die() -> str:
    """End the process."""
    os._exit(3)


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", port=int(sys.argv[2]), stateless_http="stateless" in sys.argv[3:])
