"""Streams the top-level fields of a JSON channel as artifacts of their own while the object is written."""

from collections.abc import Mapping
from typing import get_args

from chat_proc.channels.citations import CitationReplacer
from chat_proc.channels.jsontext.fields import FieldPiece, FieldText, JsonFieldReader, Path
from chat_proc.channels.specs import CITED_FORMATS, ChannelFormat, EmitDelta
from everturn.model.llm.sources import Source


class CompositeJsonArtifactStreamer:
    """One JSON object, by `feed` and then `finish`; each field goes to `emit` with its name as the artifact.

    `artifacts` maps the field names to stream to their formats; None streams every field. A value that is no format
    (a schema path) means markdown. Strings arrive decoded and with citations replaced, other values as JSON text with
    the format json. The last delta of a field is empty and completed.
    """

    def __init__(
        self,
        *,
        emit: EmitDelta,
        artifacts: Mapping[str, str] | None = None,
        channel: str = "answer",
        instance: int = 0,
        marker: str = "canvas",
        sources: Mapping[int, Source] | None = None,
    ) -> None:
        self._emit = emit
        self._artifacts = artifacts
        self._channel = channel
        self._instance = instance
        self._marker = marker
        self._sources = sources or {}
        self._reader = JsonFieldReader(self._is_artifact)
        self._field: _Field | None = None

    async def feed(self, text: str) -> None:
        """More of the JSON text."""
        for piece in self._reader.feed(text):
            await self._emit_piece(piece)

    async def finish(self) -> None:
        """The channel is over: a field that is still open is completed with what it has."""
        for piece in self._reader.finish():
            await self._emit_piece(piece)

    def _is_artifact(self, path: Path) -> bool:
        return len(path) == 1 and (self._artifacts is None or path[0] in self._artifacts)

    async def _emit_piece(self, piece: FieldPiece) -> None:
        field = self._field or self._begin(piece)
        if isinstance(piece, FieldText):
            self._field = field
            await self._emit_delta(field, field.cite.feed(piece.text) if field.cite else piece.text)
        else:
            self._field = None
            await self._emit_delta(field, field.cite.finish() if field.cite else "")
            await self._emit_delta(field, "", completed=True)

    def _begin(self, piece: FieldPiece) -> "_Field":
        name = str(piece.path[0])
        text_format = _read_format((self._artifacts or {}).get(name))
        if isinstance(piece, FieldText) and piece.is_json:
            text_format = "json"
        cited = CITED_FORMATS.get(text_format)
        return _Field(name, text_format, CitationReplacer(self._sources, cited) if cited else None)

    async def _emit_delta(self, field: "_Field", text: str, *, completed: bool = False) -> None:
        if not text and not completed:
            return
        await self._emit(
            channel=self._channel,
            instance=self._instance,
            index=field.next_index(),
            text=text,
            completed=completed,
            marker=self._marker,
            format=field.format,
            artifact=field.name,
        )


class _Field:
    """The field that is being written; it counts its deltas."""

    __slots__ = ("_deltas", "cite", "format", "name")

    def __init__(self, name: str, text_format: ChannelFormat, cite: CitationReplacer | None) -> None:
        self.name = name
        self.format: ChannelFormat = text_format
        self.cite = cite
        self._deltas = 0

    def next_index(self) -> int:
        self._deltas += 1
        return self._deltas - 1


def _read_format(declared: str | None) -> ChannelFormat:
    for known in get_args(ChannelFormat):
        if declared == known:
            return known
    return "markdown"
