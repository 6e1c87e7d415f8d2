"""`ctx_tools.fetch_ctx`: a program reads the target of a ref, found as by `react.read`, but whole and as values."""

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from chat_proc.attachments.excerpt import Excerpt, Range, cut_excerpt, load_excerpt
from chat_proc.attachments.reader import AttachmentReader
from chat_proc.catalog.tool import ToolCall, ToolOutcome, ToolSpec
from chat_proc.tools.context.resolve import (
    FoundDocument,
    FoundFile,
    FoundSkill,
    FoundSources,
    FoundStored,
    FoundText,
    Missing,
    ReadPorts,
    Resolver,
)
from everturn.core.threads import call_sized
from everturn.files.objects import Objects
from everturn.timeline.sources import Source
from everturn.turns.model import Effect

MAX_CHARS: Final = 200_000
"""Limit of one call. A text of characters with more than five bytes in JSON can be refused as too large."""
MAX_ROWS: Final = 20


class FetchCtxParams(BaseModel):
    """`ref` in any spelling; `offset` counts characters of its text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ref: str = Field(min_length=1, max_length=2048)
    offset: int = Field(default=0, ge=0)
    max_chars: int = Field(default=MAX_CHARS, ge=1, le=MAX_CHARS)


class FetchCtxTool:
    """Reads prompts, answers, notes, calls, results, text files and sources; only this person's."""

    def __init__(self, objects: Objects, attachments: AttachmentReader, ports: ReadPorts) -> None:
        self._objects = objects
        self._attachments = attachments
        self._ports = ports
        self.spec = ToolSpec(
            tool_id="ctx_tools.fetch_ctx",
            summary=(
                "Reads what a ref of this conversation names: ar:, tc:, ws:, su: and so: refs, text "
                "files by fi: refs, and documents of the agent by ks: refs."
            ),
            guide="",
            params=FetchCtxParams,
            effect=Effect.PURE,
            in_loop=False,
            in_programs=True,
            returns="{ref, text, chars, next_offset: int | None}, for so: refs {ref, rows: [{sid, title, url, text}]}",
        )

    async def run(self, call: ToolCall) -> ToolOutcome:
        params = FetchCtxParams.model_validate(call.params)
        wanted = Range(offset=params.offset)
        match await Resolver(call.context, self._ports).find(params.ref):
            case Missing(reason=reason):
                return ToolOutcome("error", f"{params.ref}: {reason}")
            case FoundDocument(first=int(first), last=int(last)) as found:
                excerpt = await call_sized(
                    len(found.text), lambda: cut_excerpt(_cut_lines(found.text, first, last), wanted, params.max_chars)
                )
                return _give(params.ref, excerpt, untrusted=found.untrusted)
            case FoundText(text=text) | FoundDocument(text=text) as found:
                excerpt = await call_sized(len(text), lambda: cut_excerpt(text, wanted, params.max_chars))
                return _give(found.ref, excerpt, untrusted=found.untrusted)
            case FoundStored(ref=ref, whole=whole):
                stored = await load_excerpt(self._objects, whole.object_key, whole.bytes, wanted, params.max_chars)
                return _give(ref, stored)
            case FoundSources() as found:
                return await _give_rows(found, params)
            case FoundSkill(file=file) if file.is_text:
                text = await call_sized(file.size, file.decode)
                return _give(file.ref, await call_sized(len(text), lambda: cut_excerpt(text, wanted, params.max_chars)))
            case FoundSkill(file=file):
                return ToolOutcome("error", f"{file.ref} is not text: read it with io_tools.read_file")
            case FoundFile(ref=ref, artifact=artifact) if self._attachments.can_read(artifact):
                return _give(ref, await self._attachments.load_excerpt(artifact, wanted, params.max_chars))
            case FoundFile(ref=ref):
                return ToolOutcome("error", f"{ref} is not text or is too long: read it with io_tools.read_file")


def _cut_lines(text: str, first: int, last: int) -> str:
    return "\n".join(text.split("\n", last)[first - 1 : last])


def _give(ref: str, excerpt: Excerpt, *, untrusted: bool = False) -> ToolOutcome:
    value = {"ref": ref, "text": excerpt.text, "chars": excerpt.chars, "next_offset": excerpt.next_offset}
    return ToolOutcome("ok", excerpt.text, value=value, untrusted=untrusted)


async def _give_rows(found: FoundSources, params: FetchCtxParams) -> ToolOutcome:
    """Whole texts within the character limit; a source that was not fetched has the text from its search result."""
    left = params.max_chars
    rows: list[dict[str, Any]] = []
    for row in found.rows[:MAX_ROWS]:
        text = await found.load_text(row.sid) if row.text_chars else row.text
        part = text[params.offset : params.offset + left]
        left -= len(part)
        rows.append(_row(row, part, params.offset + len(part), len(text)))
    value = {"ref": found.ref, "rows": rows, "absent": list(found.absent)}
    return ToolOutcome("ok", f"{len(rows)} sources", value=value, untrusted=True)


def _row(row: Source, part: str, end: int, chars: int) -> dict[str, Any]:
    return {
        "sid": row.sid,
        "title": row.title,
        "url": row.url,
        "text": part,
        "chars": chars,
        "next_offset": end if end < chars else None,
    }
