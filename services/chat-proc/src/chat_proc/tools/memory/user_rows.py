"""How memories of a person are shown to the model."""

import json
from collections.abc import Sequence

from everturn.model.memory.user_memories import UserMemory
from everturn.ports.clock import iso


def render_memories(memories: Sequence[UserMemory]) -> str:
    """One line of JSON for each."""
    return "\n".join(json.dumps(_as_json(memory), ensure_ascii=False) for memory in memories)


def _as_json(memory: UserMemory) -> dict[str, object]:
    return {
        "memory_id": memory.id,
        "text": memory.text,
        "labels": list(memory.labels),
        "pinned": memory.pinned,
        "confidence": memory.confidence,
        "salience": memory.salience,
        "updated": iso(memory.updated_at),
    }
