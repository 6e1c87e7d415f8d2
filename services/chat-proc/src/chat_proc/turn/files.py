"""The beginnings of a turn's text files, for the model."""

import asyncio
from collections.abc import Mapping, Sequence

import structlog

from chat_proc.timeline.files import is_text
from everturn.core.errors import EverturnError
from everturn.core.text import decode_text
from everturn.files.model import Artifact
from everturn.files.objects import Objects
from everturn.timeline.bodies import AttachmentTextBody
from everturn.timeline.turns import Turn

PREVIEW_BYTES = 64 * 1024
"""How much of a text attachment is read for its preview."""
PREVIEW_CHARS = 4_000
"""How much of the attachment the model sees without asking."""
MAX_PREVIEWS = 20
"""For the files that signals bring in one round."""

_log = structlog.get_logger(__name__)


async def load_preview(objects: Objects, artifact: Artifact) -> AttachmentTextBody:
    """The beginning of a stored text file. A character cut by the byte limit is left out."""
    end = min(artifact.size, PREVIEW_BYTES)
    whole = end == artifact.size
    data = b"".join([chunk async for chunk in objects.load_range(artifact.object_key, start=0, end=end)])
    text = decode_text(data, artifact.mime, whole=whole)
    return AttachmentTextBody(
        filename=artifact.filename, text=text[:PREVIEW_CHARS], total_chars=len(text) if whole else None
    )


async def load_some_previews(
    objects: Objects, artifacts: Sequence[Artifact], *, limit_s: float = 10.0
) -> Mapping[str, AttachmentTextBody]:
    """Previews of the first text files among these, by ref. A file that can't be read in time has none."""
    previews: dict[str, AttachmentTextBody] = {}
    texts = [artifact for artifact in artifacts if is_text(artifact.mime)]
    try:
        async with asyncio.timeout(limit_s):
            for artifact in texts[:MAX_PREVIEWS]:
                previews[artifact.ref] = await load_preview(objects, artifact)
    except (EverturnError, TimeoutError) as error:
        # The file itself stays readable by its ref, once the store answers again.
        _log.warning("Could not load file previews", previews=len(previews), files=len(texts), error=str(error))
    return previews


async def load_previews(turn: Turn, objects: Objects, limit_s: float = 30.0) -> Mapping[str, AttachmentTextBody]:
    """The previews of the text attachments by ref. Raises Unavailable, NotFound or TimeoutError."""
    async with asyncio.timeout(limit_s):
        files = [*turn.request.attachments, *(file for event in turn.request.events for file in event.attachments)]
        texts = [artifact for artifact in files if is_text(artifact.mime)]
        return {artifact.ref: await load_preview(objects, artifact) for artifact in texts}
