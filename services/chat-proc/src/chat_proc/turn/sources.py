"""The source pool of a leased turn: its rows in memory, and the changes that wait for the next commit."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import replace

import structlog

from chat_proc.channels.citations import cite_text, find_used_sids, index_sources
from everturn.events.turn_view import find_written_content
from everturn.files.model import Artifact, ArtifactKind
from everturn.timeline.blocks import (
    AttachmentBody,
    BlockDraft,
    CompletionBody,
    EventBody,
    SignalBody,
    ToolCallBody,
    ToolResultBody,
)
from everturn.timeline.sources import PoolFull, Source, SourceChange, SourceDraft, build_citations, merge_sources

_log = structlog.get_logger(__name__)

LoadText = Callable[[int], Awaitable[str]]
SOURCES_USED = "sources_used"
"""The key in a call's result that lists the sources cited by a written file."""


class TurnSources:
    """Implements SourcePool. Tools claim; only the leased turn reads pending changes and settles them."""

    def __init__(self, rows: Iterable[Source], load_text: LoadText) -> None:
        self._rows = {row.key: row for row in rows}
        self._load_text = load_text
        self._pending: dict[int, SourceChange] = {}

    @property
    def rows(self) -> Sequence[Source]:
        return sorted(self._rows.values(), key=lambda row: row.sid)

    def claim(self, drafts: Sequence[SourceDraft]) -> tuple[Source, ...]:
        merged = merge_sources(self._rows, drafts)
        for change in merged.changes:
            self._add_change(change)
        return merged.rows

    async def load_text(self, sid: int) -> str:
        pending = self._pending.get(sid)
        if pending is not None and pending.text is not None:
            return pending.text
        return await self._load_text(sid)

    def accept_drafts(self, drafts: Sequence[BlockDraft]) -> tuple[BlockDraft, ...]:
        """Resolve the citations of these blocks. Their images get rows, and cited sources are marked as used."""
        images = [
            build_image_draft(artifact) for artifact in _artifacts_of(drafts) if artifact.mime.startswith("image/")
        ]
        try:
            self.claim(images)
        except PoolFull as full:
            _log.warning("Could not add sources for images", images=len(images), why=str(full))
        cited = tuple(map(self._cite, drafts))
        self._mark_used(_cited_in(cited))
        return cited

    def pending(self) -> tuple[SourceChange, ...]:
        """The changes that the next commit has to write."""
        return tuple(self._pending[sid] for sid in sorted(self._pending))

    def settle(self, written: Sequence[SourceChange]) -> None:
        """Mark these changes as stored; what was claimed during the commit stays pending."""
        for change in written:
            if self._pending.get(change.row.sid) is change:
                del self._pending[change.row.sid]

    def _cite(self, draft: BlockDraft) -> BlockDraft:
        match draft.body:
            case CompletionBody() as body:
                return replace(draft, body=self._cite_answer(body))
            case ToolCallBody() as body if (content := find_written_content(body)) is not None:
                shown = cite_text(index_sources(self._rows.values()), content.text, content.format)
                return draft if shown == content.text else replace(draft, body=body.model_copy(update={"shown": shown}))
            case _:
                return draft

    def _cite_answer(self, body: CompletionBody) -> CompletionBody:
        """Resolve the citations of an answer that was not streamed; clients receive them in a rewind."""
        changes: dict[str, object] = {}
        sids = body.sources_used
        if body.shown is None and "[[" in body.text:
            sources = index_sources(self._rows.values())
            shown, sids = cite_text(sources, body.text), find_used_sids(sources, body.text)
            changes = {"shown": shown if shown != body.text else None, "sources_used": sids}
        if sids:
            changes["citations"] = build_citations(self._rows.values(), sids)
        return body.model_copy(update=changes) if changes else body

    def _mark_used(self, sids: Collection[int]) -> None:
        for row in [row for row in self._rows.values() if row.sid in sids and not row.used]:
            self._add_change(SourceChange(replace(row, used=True)))

    def _add_change(self, change: SourceChange) -> None:
        row = change.row
        self._rows[row.key] = row
        self._pending[row.sid] = change.after(self._pending.get(row.sid))


def build_image_draft(artifact: Artifact) -> SourceDraft:
    """An image as a source: it can be shown, but is never evidence."""
    source_type = "attachment" if artifact.kind is ArtifactKind.ATTACHMENT else "file"
    return SourceDraft(artifact.filename, artifact.ref, source_type, mime=artifact.mime)


def _artifacts_of(drafts: Sequence[BlockDraft]) -> list[Artifact]:
    found: list[Artifact] = []
    for draft in drafts:
        match draft.body:
            case AttachmentBody(artifact=artifact):
                found.append(artifact)
            case (
                SignalBody(attachments=artifacts)
                | EventBody(attachments=artifacts)
                | ToolResultBody(artifacts=artifacts)
            ):
                found.extend(artifacts)
            case _:
                """The other blocks bring no files."""
    return found


def _cited_in(drafts: Sequence[BlockDraft]) -> set[int]:
    cited: set[int] = set()
    for draft in drafts:
        match draft.body:
            case CompletionBody(sources_used=sids):
                cited.update(sids)
            case ToolResultBody(data=dict() as data):
                cited.update(sid for sid in data.get(SOURCES_USED, ()) if isinstance(sid, int))
            case _:
                """The other blocks cite nothing."""
    return cited
