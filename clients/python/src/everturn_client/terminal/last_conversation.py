"""Remembers the last conversation with each server and user in a small file."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import cast

MAX_REMEMBERED = 50
MAX_FILE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class LastConversations:
    """The file is `<folder>/conversations.json`; `place` combines server, tenant, project and user in one text."""

    folder: Path
    place: str

    @property
    def path(self) -> Path:
        return self.folder / "conversations.json"

    def try_load(self) -> str | None:
        """The last conversation here; None if there is none or the file can't be read."""
        return self._load_all().get(self.place)

    def save(self, conversation_id: str) -> None:
        """Remember it as the last one. The oldest entries are dropped."""
        remembered = {place: last for place, last in self._load_all().items() if place != self.place}
        remembered[self.place] = conversation_id
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = self.path.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(dict(list(remembered.items())[-MAX_REMEMBERED:]), indent=1))
        part.replace(self.path)

    def _load_all(self) -> dict[str, str]:
        try:
            with self.path.open() as file:
                stored = json.loads(file.read(MAX_FILE_BYTES))
        except (OSError, ValueError):
            return {}
        if not isinstance(stored, dict):
            return {}
        return {key: value for key, value in cast(dict[str, object], stored).items() if isinstance(value, str)}
