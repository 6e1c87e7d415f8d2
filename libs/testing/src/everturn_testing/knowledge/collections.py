"""Files for collections."""

from datetime import UTC, datetime
from hashlib import sha256
from itertools import count

from everturn.core.ids import ArtifactId, CollectionId, make_id
from everturn.files.model import Upload, upload_key

_numbers = count(1)


def build_upload(collection_id: CollectionId, name: str, data: bytes, *, mime: str = "text/plain") -> Upload:
    """The row of a checked file, each with an id of its own; its object is not saved."""
    digest, number = sha256(data).hexdigest(), next(_numbers)
    artifact_id = ArtifactId(make_id("art", 1_772_366_400_000 + number, number.to_bytes(10)))
    return Upload(
        id=artifact_id,
        filename=name,
        mime=mime,
        size=len(data),
        sha256=digest,
        object_key=upload_key(collection_id, digest, artifact_id),
        verdict="clean",
        begun_at=datetime.now(UTC),
    )
