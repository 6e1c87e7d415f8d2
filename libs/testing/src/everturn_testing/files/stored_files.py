"""Stored files for tests: artifact rows and objects in memory, of one owner's conversations."""

from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.files.model import Artifact, ArtifactKind
from everturn_testing.files.artifacts import MemoryArtifacts
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.in_memory_platform import ConversationRow, MemoryPlatform
from everturn_testing.timeline import build_file

OWNER = Principal("acme", "main", "ann")


class StoredFiles:
    """`artifacts` and `objects` are the drivers; `put` and `remember` fill them."""

    def __init__(
        self,
        owner: Principal = OWNER,
        *,
        objects: MemoryObjects | None = None,
        platform: MemoryPlatform | None = None,
    ) -> None:
        self.owner = owner
        self.platform = platform or MemoryPlatform()
        self.artifacts = MemoryArtifacts(self.platform)
        self.objects = objects or MemoryObjects()

    def put(
        self,
        turn_id: str,
        name: str,
        data: bytes,
        *,
        kind: ArtifactKind = ArtifactKind.FILE,
        mime: str = "text/plain",
        conversation_id: str = "conv_1",
    ) -> Artifact:
        """Store a file as a turn would."""
        artifact = build_file(turn_id, name, data, mime=mime, kind=kind)
        artifact = artifact.model_copy(update={"object_key": f"{conversation_id}/{artifact.sha256}"})
        self.objects.stored[artifact.object_key] = data
        self.remember(artifact, conversation_id=conversation_id)
        return artifact

    def remember(self, *artifacts: Artifact, conversation_id: str = "conv_1") -> None:
        """Add rows."""
        known = ConversationId(conversation_id)
        row = self.platform.conversations.setdefault(known, ConversationRow(known, self.owner))
        row.artifacts.extend(artifacts)
