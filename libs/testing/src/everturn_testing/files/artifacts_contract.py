"""The contract of Artifacts as tests; a subclass or its module defines the fixtures `artifacts` and `harness`."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from everturn.core.errors import Invalid, NotFound
from everturn.core.ids import ConversationId, TurnId
from everturn.core.refs import file_ref
from everturn.files.model import WHITEOUT_MIME, Artifact, ArtifactKind, parse_rn
from everturn.files.ports import MAX_PAGE, Artifacts, WorkspaceTurn
from everturn_testing.turns.harness import ANN, STRANGERS, Harness, commit, think, turn_of


def build_row(harness: Harness, turn_id: str, ref: str, description: str = "") -> Artifact:
    """A file of the workspace; each call makes a newer row."""
    return Artifact(
        id=harness.ids.artifact(),
        turn_id=TurnId(turn_id),
        ref=ref,
        rn="ef:x",
        kind=ArtifactKind.FILE,
        filename=ref.rsplit("/", 1)[-1],
        path=ref,
        mime="text/plain",
        size=1,
        sha256="0" * 64,
        object_key="conv_x/0",
        visibility="internal",
        verdict="not scanned",
        description=description,
    )


async def save_rows(
    harness: Harness, *refs: str, **changed: Mapping[str, object]
) -> tuple[ConversationId, list[Artifact]]:
    """A conversation with one row for each ref, in this order; `_0={...}` changes fields of the first one."""
    claim = await harness.start_turn()
    assert claim.turn_id is not None
    rows = [
        build_row(harness, claim.turn_id, ref).model_copy(update=changed.get(f"_{n}", {})) for n, ref in enumerate(refs)
    ]
    await harness.timelines.commit(claim.lease, replace(commit(claim, think(claim, "a")), artifacts=tuple(rows)))
    return claim.lease.conversation_id, rows


class ArtifactsContract:
    """Required of every Artifacts."""

    async def test_an_attachment_is_found_by_its_id_and_by_its_ref(
        self, artifacts: Artifacts, harness: Harness
    ) -> None:
        receipt = await harness.say(uploads=(harness.upload(),))
        (attachment,) = (await harness.timelines.load_turn(ANN, turn_of(receipt))).request.attachments

        assert await artifacts.load(ANN, attachment.id) == attachment
        assert await artifacts.load_by_ref(ANN, receipt.conversation_id, attachment.ref) == attachment

    async def test_a_file_is_found_by_its_rn_by_its_owner_only(self, artifacts: Artifacts, harness: Harness) -> None:
        receipt = await harness.say(uploads=(harness.upload(),))
        (attachment,) = (await harness.timelines.load_turn(ANN, turn_of(receipt))).request.attachments
        rn = parse_rn(attachment.rn)

        assert await artifacts.load_by_rn(ANN, rn) == attachment

        for stranger in STRANGERS:
            with pytest.raises(NotFound):
                await artifacts.load_by_rn(stranger, rn)
        with pytest.raises(NotFound):
            await artifacts.load_by_rn(ANN, replace(rn, path="other"))

    async def test_a_turn_starts_with_whether_there_are_files(self, artifacts: Artifacts, harness: Harness) -> None:
        empty, _ = await save_rows(harness)
        used, _ = await save_rows(harness, "fi:turn_1.files/a.txt")

        for conversation_id, has_files in ((empty, False), (used, True)):
            receipt = await harness.say("And then?", conversation_id)
            assert receipt.turn_id is not None
            start = await harness.timelines.load_start(ANN, conversation_id, receipt.turn_id)
            assert start.has_files is has_files

    async def test_a_ref_names_the_newest_of_its_files(self, artifacts: Artifacts, harness: Harness) -> None:
        conversation_id, (old, new) = await save_rows(harness, "fi:t.files/a", "fi:t.files/a", _1={"size": 2**40})

        assert await artifacts.load_by_ref(ANN, conversation_id, old.ref) == new
        assert await artifacts.load_by_refs(ANN, conversation_id, [old.ref, "fi:none", old.ref]) == (new,)
        assert await artifacts.load_tree(ANN, conversation_id, "fi:t.files/") == (new,)

    async def test_a_missing_file_is_not_found(self, artifacts: Artifacts, harness: Harness) -> None:
        with pytest.raises(NotFound):
            await artifacts.load(ANN, harness.ids.artifact())
        with pytest.raises(NotFound):
            await artifacts.load_by_ref(ANN, harness.ids.conversation(), "fi:x")
        assert await artifacts.load_by_refs(ANN, harness.ids.conversation(), ["fi:x"]) == ()

    async def test_a_tree_is_paged_by_ref_within_its_prefix(self, artifacts: Artifacts, harness: Harness) -> None:
        refs = ["fi:t.files/b", "fi:t.files/a", "fi:t.files/\u00e9", "fi:t.files/Z", "fi:t.files0", "fi:t.outputs/a"]
        conversation_id, _ = await save_rows(harness, *refs)

        first = await artifacts.load_tree(ANN, conversation_id, "fi:t.files/", limit=3)
        rest = await artifacts.load_tree(ANN, conversation_id, "fi:t.files/", after=first[-1].ref, limit=3)

        assert [artifact.ref for artifact in first] == ["fi:t.files/Z", "fi:t.files/a", "fi:t.files/b"]
        assert [artifact.ref for artifact in rest] == ["fi:t.files/\u00e9"]

    async def test_a_removed_ref_is_not_listed_but_still_found(self, artifacts: Artifacts, harness: Harness) -> None:
        conversation_id, rows = await save_rows(
            harness,
            *(file_ref("turn_0", name) for name in ("kept", "gone", "back", "gone", "back", "back")),
            _3={"removed": True},
            _4={"removed": True},
        )

        tree = await artifacts.load_tree(ANN, conversation_id, "fi:turn_0.files/")
        turns = await artifacts.load_workspace_turns(ANN, conversation_id)

        assert tree == (rows[5], rows[0])
        assert await artifacts.load_by_ref(ANN, conversation_id, rows[1].ref) == rows[1]
        assert turns == (WorkspaceTurn(rows[0].turn_id, 2),)

    async def test_a_file_that_its_turn_deleted_is_not_found(self, artifacts: Artifacts, harness: Harness) -> None:
        gone, back = file_ref("turn_0", "gone"), file_ref("turn_0", "back")
        deleted = {"removed": True, "mime": WHITEOUT_MIME}
        conversation_id, rows = await save_rows(harness, gone, back, gone, back, back, _2=deleted, _3=deleted)

        with pytest.raises(NotFound):
            await artifacts.load_by_ref(ANN, conversation_id, gone)
        assert await artifacts.load_by_refs(ANN, conversation_id, [gone, back]) == (rows[4],)

    async def test_the_last_turns_with_files_come_newest_first(self, artifacts: Artifacts, harness: Harness) -> None:
        refs = [file_ref(f"turn_{n}", name) for n in range(3) for name in ("a", "b")]
        moved = {f"_{n}": {"turn_id": f"turn_{n // 2}"} for n in range(6)}
        output = {"turn_id": "turn_3", "kind": ArtifactKind.OUTPUT}
        conversation_id, _ = await save_rows(harness, *refs, "fi:turn_3.outputs/x", **moved, _6=output)

        found = await artifacts.load_workspace_turns(ANN, conversation_id, limit=2)

        assert found == (WorkspaceTurn(TurnId("turn_2"), 2), WorkspaceTurn(TurnId("turn_1"), 2))

    async def test_unreferenced_keys_are_found(self, artifacts: Artifacts, harness: Harness) -> None:
        upload = harness.upload()
        await harness.say(uploads=(upload,))

        keys = [upload.object_key, "conv_x/other"]

        assert await artifacts.load_unreferenced(ANN, keys) == ("conv_x/other",)
        assert upload.object_key in await artifacts.load_named_keys(ANN, ConversationId("conv_x"))
        assert await artifacts.load_named_keys(ANN, ConversationId("conv_")) == frozenset()

    async def test_page_sizes_are_bounded(self, artifacts: Artifacts, harness: Harness) -> None:
        conversation_id = harness.ids.conversation()

        for limit in (0, MAX_PAGE + 1):
            with pytest.raises(Invalid):
                await artifacts.load_tree(ANN, conversation_id, "fi:t.files/", limit=limit)
        with pytest.raises(Invalid):
            await artifacts.load_by_refs(ANN, conversation_id, [str(n) for n in range(MAX_PAGE + 1)])
        with pytest.raises(Invalid):
            await artifacts.load_tree(ANN, conversation_id, "fi:t.files")

    async def test_nobody_else_sees_anything(self, artifacts: Artifacts, harness: Harness) -> None:
        conversation_id, (artifact,) = await save_rows(harness, "fi:t.files/secret")

        for stranger in STRANGERS:
            with pytest.raises(NotFound):
                await artifacts.load(stranger, artifact.id)
            assert await artifacts.load_by_refs(stranger, conversation_id, [artifact.ref]) == ()
            assert await artifacts.load_tree(stranger, conversation_id, "fi:t.files/") == ()
            assert await artifacts.load_workspace_turns(stranger, conversation_id) == ()
