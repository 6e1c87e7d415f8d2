"""Finding the row of a stored file; without its row an object is invisible."""

from collections.abc import Sequence
from typing import Protocol

from everturn.model.artifacts import Artifact
from everturn.model.identity import Principal
from everturn.model.ids import ArtifactId, ConversationId


class Artifacts(Protocol):
    """All calls see only the principal's own files; another's id is NotFound."""

    async def load(self, principal: Principal, artifact_id: ArtifactId) -> Artifact: ...

    async def load_by_ref(self, principal: Principal, conversation_id: ConversationId, ref: str) -> Artifact: ...

    async def load_unreferenced(
        self, principal: Principal, conversation_id: ConversationId, object_keys: Sequence[str]
    ) -> tuple[str, ...]:
        """Which of these keys no artifact row of the conversation names. An unknown conversation names none."""
        ...
