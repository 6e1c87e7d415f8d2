"""Objects of an erased conversation are deleted unless a fork names them; erasing the last fork deletes those."""

from dataclasses import dataclass, field

from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.files.model import object_key
from everturn.lifecycle.erasure import delete_erased_objects
from everturn_testing.core import FixedClock
from everturn_testing.files.artifacts import MemoryArtifacts
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.in_memory_platform import MemoryPlatform

ANN = Principal("acme", "support", "ann")
MINE, FORK = ConversationId("conv_mine"), ConversationId("conv_fork")


@dataclass
class NamedKeys(MemoryArtifacts):
    """Artifact rows, as far as they name keys."""

    named: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        super().__init__(MemoryPlatform(FixedClock()))

    def _named(self, principal: Principal) -> set[str]:
        assert principal == ANN
        return self.named


async def test_shared_objects_stay_until_the_fork_is_erased() -> None:
    objects = MemoryObjects()
    shared, own = object_key(MINE, "a"), object_key(MINE, "b")
    objects.stored = {shared: b"a", own: b"b"}
    artifacts = NamedKeys(named={shared})

    first = await delete_erased_objects(artifacts, objects, ANN, MINE, [shared, own])
    left = set(objects.stored)
    artifacts.named = set()
    second = await delete_erased_objects(artifacts, objects, ANN, FORK, [shared])

    assert (first, left) == (1, {shared})
    assert (second, objects.stored) == (1, {})


async def test_erasing_a_fork_keeps_its_source_complete() -> None:
    objects = MemoryObjects()
    shared = object_key(MINE, "a")
    objects.stored = {shared: b"a", object_key(FORK, "c"): b"c"}

    deleted = await delete_erased_objects(NamedKeys(named={shared}), objects, ANN, FORK, [shared])

    assert (deleted, set(objects.stored)) == (1, {shared})
