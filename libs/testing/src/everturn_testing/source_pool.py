"""A source pool in memory, like that of a leased turn."""

from collections.abc import Sequence

from everturn.core.errors import NotFound
from everturn.timeline.sources import Source, SourceDraft, merge_sources


class MemorySourcePool:
    """Implements SourcePool; claimed sources are stored at once."""

    def __init__(self) -> None:
        self.by_key: dict[str, Source] = {}
        self.texts: dict[int, str] = {}

    @property
    def rows(self) -> list[Source]:
        return list(self.by_key.values())

    def claim(self, drafts: Sequence[SourceDraft]) -> tuple[Source, ...]:
        merged = merge_sources(self.by_key, drafts)
        self.by_key |= {change.row.key: change.row for change in merged.changes}
        self.texts |= {change.row.sid: change.text for change in merged.changes if change.text is not None}
        return merged.rows

    async def load_text(self, sid: int) -> str:
        if all(row.sid != sid for row in self.rows):
            raise NotFound(f"source {sid}")
        return self.texts.get(sid, "")
