"""What is left to do after the rows of a conversation are erased: its objects, except those that forks share."""

from collections.abc import Sequence

from everturn.model.identity import Principal
from everturn.model.ids import ConversationId
from everturn.ports.artifacts import Artifacts
from everturn.ports.objects import Objects


async def delete_erased_objects(
    artifacts: Artifacts,
    objects: Objects,
    principal: Principal,
    conversation_id: ConversationId,
    object_keys: Sequence[str] = (),
) -> int:
    """Delete all objects of an erased conversation that no row names, also those of commits that were refused.

    `object_keys` are those its rows named: of another conversation's objects it may have been the last that did.
    Looked up after the erasure is committed, so that of two erasures at once the later one deletes. Returns a count.
    """
    kept = await artifacts.load_named_keys(principal, conversation_id)
    deleted = await objects.delete_conversation(conversation_id, keep=kept)
    foreign = [key for key in object_keys if not key.startswith(f"{conversation_id}/")]
    if foreign:
        deleted += await objects.delete(await artifacts.load_unreferenced(principal, foreign))
    return deleted
