"""Files that the workflow of a bundle stores and reads outside of tool calls."""

from collections.abc import Iterable
from typing import Final, Literal

from chat_proc.catalog.tool import ToolCall
from chat_proc.tools.stored_files import store_file
from everturn.core.errors import Invalid
from everturn.files.model import Artifact
from everturn.files.objects import Objects

MAX_READ_BYTES: Final = 1024 * 1024
"""A longer file is not sent to a workflow."""
MAX_DESCRIPTION_CHARS: Final = 300


class WorkflowFiles:
    """Implements the Files of `agent.authored.port`."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    async def save(
        self,
        call: ToolCall,
        path: str,
        content: bytes,
        *,
        visibility: Literal["internal", "external"],
        description: str,
        others: Iterable[Artifact],
    ) -> Artifact:
        return await store_file(
            self._objects,
            call,
            path,
            content,
            visibility=visibility,
            description=description[:MAX_DESCRIPTION_CHARS],
            others=others,
        )

    async def load(self, artifact: Artifact) -> bytes:
        if artifact.size > MAX_READ_BYTES:
            raise Invalid(f"{artifact.ref} has {artifact.size} bytes; at most {MAX_READ_BYTES} can be read.")
        return await self._objects.load(artifact.object_key, max_bytes=artifact.size)
