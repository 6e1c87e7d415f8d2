"""The contract of Scans as tests; a subclass or its module defines the fixtures `scans`, `artifacts` and `harness`."""

import pytest

from everturn.core.errors import NotFound
from everturn.core.ids import ConversationId
from everturn.files.model import Artifact
from everturn.files.ports import Artifacts, Revoked, Scans
from everturn_testing.turns.harness import ANN, Harness, turn_of


async def attach(harness: Harness) -> tuple[ConversationId, Artifact]:
    """A conversation with one file attached to a message."""
    receipt = await harness.say(uploads=(harness.upload(),))
    (attachment,) = (await harness.timelines.load_turn(ANN, turn_of(receipt))).request.attachments
    return receipt.conversation_id, attachment


class ScansContract:
    """Required of every Scans."""

    async def test_files_with_another_verdict_come_in_pages_by_id(self, scans: Scans, harness: Harness) -> None:
        files = [(await attach(harness))[1] for _ in range(3)]
        ids = sorted(file.id for file in files)
        before = ids[0][:-1]

        first = await scans.load_outdated("clean new", after=before, limit=2)
        rest = await scans.load_outdated("clean new", after=first[-1].id)

        assert [target.id for target in (*first, *rest)] == ids
        assert (first[0].verdict, first[0].revoked) == (files[0].verdict, False)

    async def test_a_file_with_this_verdict_is_not_outdated(self, scans: Scans, harness: Harness) -> None:
        _, file = await attach(harness)

        await scans.save_verdict(file.object_key, "clean new")

        assert file.id not in [target.id for target in await scans.load_outdated("clean new", limit=500)]
        assert file.id in [target.id for target in await scans.load_outdated(None, limit=500)]
        assert (await scans.load(file.id)).verdict == "clean new"

    async def test_a_revoked_file_can_not_be_read(self, scans: Scans, artifacts: Artifacts, harness: Harness) -> None:
        conversation_id, file = await attach(harness)
        prefix = file.ref.rpartition("/")[0] + "/" if "/" in file.ref else file.ref.rpartition(".")[0] + "."

        assert await scans.revoke(file.object_key) >= 1

        with pytest.raises(Revoked):
            await artifacts.load(ANN, file.id)
        with pytest.raises(NotFound):
            await artifacts.load_by_ref(ANN, conversation_id, file.ref)
        assert await artifacts.load_by_refs(ANN, conversation_id, [file.ref]) == ()
        assert await artifacts.load_tree(ANN, conversation_id, prefix) == ()
        assert await artifacts.load_unreferenced(ANN, [file.object_key]) == (file.object_key,)

    async def test_a_revoked_file_is_listed_until_its_object_is_deleted(self, scans: Scans, harness: Harness) -> None:
        _, file = await attach(harness)

        await scans.revoke(file.object_key)
        half_done = await scans.load(file.id)
        await scans.save_verdict(file.object_key, "revoked Eicar")

        assert half_done.revoked
        assert file.id not in [target.id for target in await scans.load_outdated(None, limit=500)]
        with pytest.raises(NotFound):
            await scans.load(file.id)

    async def test_a_missing_file_is_not_found(self, scans: Scans, harness: Harness) -> None:
        with pytest.raises(NotFound):
            await scans.load(harness.ids.artifact())
        assert await scans.revoke("conv_none/0") == 0
