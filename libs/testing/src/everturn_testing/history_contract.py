"""The contract of WorkspaceChanges as tests; a subclass or its module defines the fixtures `changes` and `harness`."""

from dataclasses import replace

from everturn.core.ids import ConversationId, TurnId
from everturn.core.refs import file_ref
from everturn.files.model import WHITEOUT_MIME, Artifact
from everturn.history.model import KnownFile, Origin, WorkspaceChanges
from everturn_testing.files.artifacts_contract import build_row
from everturn_testing.turns.harness import ANN, STRANGERS, Harness, closing, commit, think


def build_file(harness: Harness, turn_id: TurnId, path: str, sha256: str = "0" * 64) -> Artifact:
    """A file in `files/` of a turn."""
    row = build_row(harness, turn_id, file_ref(turn_id, path))
    return row.model_copy(update={"path": f"{turn_id}/files/{path}", "sha256": sha256})


async def run_turn(
    harness: Harness, text: str, *files: str, conversation_id: ConversationId | None = None, ends: bool = True
) -> tuple[ConversationId, TurnId]:
    """A turn that writes these files, or deletes those with a minus or takes back those with a tilde."""
    receipt = await harness.say(text, conversation_id)
    claim = await harness.claim(receipt.conversation_id)
    assert claim.turn_id is not None
    rows = [build_file(harness, claim.turn_id, path.lstrip("-~")) for path in files]
    for n, path in enumerate(files):
        if path.startswith(("-", "~")):
            mime = WHITEOUT_MIME if path.startswith("-") else "text/plain"
            rows[n] = rows[n].model_copy(update={"removed": True, "mime": mime})
    written = think(claim, "a")
    await harness.timelines.commit(claim.lease, replace(commit(claim, written), artifacts=tuple(rows)))
    if ends:
        await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq, after=written))
        await harness.leases.release(claim.lease, requeue=False)
    return claim.lease.conversation_id, claim.turn_id


class WorkspaceChangesContract:
    """Required of every WorkspaceChanges."""

    async def test_the_changes_of_ended_turns_come_in_their_order(
        self, changes: WorkspaceChanges, harness: Harness
    ) -> None:
        conversation_id, first = await run_turn(harness, "Write both.\nThen say so.", "b", "a/x")
        await run_turn(harness, "Only talk.", conversation_id=conversation_id)
        long = 'Say "\u00e9\\" \x01\n' + "\U0001f600" * 5_000
        _, third = await run_turn(harness, long, "b", "-a/x", "a", conversation_id=conversation_id)
        await run_turn(harness, "Not ended.", "late", conversation_id=conversation_id, ends=False)

        found = await changes.load(ANN, conversation_id)

        shown = [
            (turn.turn_id, turn.subject, [(each.path, each.artifact is None) for each in turn.changes])
            for turn in found
        ]
        assert shown == [
            (first, "Write both.", [("a/x", False), ("b", False)]),
            (third, 'Say "\u00e9\\"', [("a/x", True), ("a", False), ("b", False)]),
        ]
        assert found[0].accepted_at <= found[1].accepted_at

    async def test_a_turn_without_printable_text_has_a_subject_too(
        self, changes: WorkspaceChanges, harness: Harness
    ) -> None:
        conversation_id, _ = await run_turn(harness, "\x02\n \n", "a")
        await run_turn(harness, "x" * 200, "a", conversation_id=conversation_id)

        assert [turn.subject for turn in await changes.load(ANN, conversation_id)] == [
            "Change files",
            f"{'x' * 71}\u2026",
        ]

    async def test_what_a_turn_took_back_is_not_a_change(self, changes: WorkspaceChanges, harness: Harness) -> None:
        conversation_id, _ = await run_turn(harness, "Write.", "kept", "gone", "~gone", "again", "-again", "again")

        (turn,) = await changes.load(ANN, conversation_id)

        assert [(each.path, each.artifact is None) for each in turn.changes] == [("again", False), ("kept", False)]

    async def test_a_deletion_of_what_is_no_file_is_no_change(
        self, changes: WorkspaceChanges, harness: Harness
    ) -> None:
        conversation_id, first = await run_turn(harness, "Write.", "a/x", "b")
        await run_turn(harness, "Delete.", "-a", "-none", conversation_id=conversation_id)
        _, third = await run_turn(harness, "Delete.", "-a", "-b", conversation_id=conversation_id)

        found = await changes.load(ANN, conversation_id)

        assert [(turn.turn_id, [each.path for each in turn.changes]) for turn in found] == [
            (first, ["a/x", "b"]),
            (third, ["b"]),
        ]

    async def test_the_changes_of_a_turn_that_goes_on_are_found_if_wanted(
        self, changes: WorkspaceChanges, harness: Harness
    ) -> None:
        conversation_id, first = await run_turn(harness, "Write.", "a")
        _, second = await run_turn(harness, "Go on.", "-a", "b", conversation_id=conversation_id, ends=False)

        found = await changes.load(ANN, conversation_id, also=second)

        assert [(turn.turn_id, [each.path for each in turn.changes]) for turn in found] == [
            (first, ["a"]),
            (second, ["a", "b"]),
        ]

    async def test_the_first_imported_file_names_the_origin(self, changes: WorkspaceChanges, harness: Harness) -> None:
        conversation_id, turn_id = await run_turn(harness, "Write.", "a")
        assert await changes.load_origin(ANN, conversation_id) is None
        first, second = Origin("https://example.com/a.git", "a" * 40), Origin("https://example.com/a.git", "b" * 40)
        claim = await harness.claim((await harness.say("Import.", conversation_id)).conversation_id)
        rows = [
            build_file(harness, turn_id, mark[-4:]).model_copy(update={"description": mark})
            for mark in ("Imported from sales.csv", first.mark, second.mark)
        ]
        before, written = think(claim, "a"), think(claim, "b", after=think(claim, "a"))
        await harness.timelines.commit(claim.lease, replace(commit(claim, before), artifacts=tuple(rows[:2])))
        await harness.timelines.commit(claim.lease, replace(commit(claim, written), artifacts=tuple(rows[2:])))

        assert await changes.load_origin(ANN, conversation_id) == first
        for stranger in STRANGERS:
            assert await changes.load_origin(stranger, conversation_id) is None

    async def test_all_that_turns_did_to_a_file_is_known(self, changes: WorkspaceChanges, harness: Harness) -> None:
        origin = Origin("https://example.com/a.git", "a" * 40)
        claim = await harness.claim((await harness.say("Import.")).conversation_id)
        conversation_id, turn_id = claim.lease.conversation_id, claim.turn_id
        assert turn_id is not None
        imported = [
            build_file(harness, turn_id, path, "1" * 64).model_copy(update={"description": origin.mark})
            for path in ("kept", "gone", "back")
        ]
        gone = build_file(harness, turn_id, "gone").model_copy(update={"removed": True, "mime": WHITEOUT_MIME})
        taken = build_file(harness, turn_id, "kept", "2" * 64).model_copy(update={"removed": True})
        before, written = think(claim, "a"), think(claim, "b", after=think(claim, "a"))
        await harness.timelines.commit(claim.lease, replace(commit(claim, before), artifacts=tuple(imported)))
        await harness.timelines.commit(claim.lease, replace(commit(claim, written), artifacts=(gone, taken)))
        assert await changes.load_known_files(ANN, conversation_id, origin) == {}
        await harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq, after=written))
        await harness.leases.release(claim.lease, requeue=False)
        await run_turn(harness, "Delete.", "-back", "new", conversation_id=conversation_id)
        _, third = await run_turn(harness, "Restore.", "back", "-new", conversation_id=conversation_id, ends=False)

        known = await changes.load_known_files(ANN, conversation_id, origin, also=third)

        assert known == {
            "kept": KnownFile("1" * 64, frozenset({"1" * 64, "2" * 64})),
            "gone": KnownFile("1" * 64, frozenset({"0" * 64, "1" * 64}), is_deleted=True, was_deleted=True),
            "back": KnownFile("1" * 64, frozenset({"0" * 64, "1" * 64}), was_deleted=True),
            "new": KnownFile("", frozenset({"0" * 64}), is_deleted=True, was_deleted=True),
        }
        assert (await changes.load_known_files(ANN, conversation_id, origin))["new"].is_deleted is False
        for stranger in STRANGERS:
            assert await changes.load_known_files(stranger, conversation_id, origin, also=third) == {}

    async def test_nobody_else_sees_changes(self, changes: WorkspaceChanges, harness: Harness) -> None:
        conversation_id, _ = await run_turn(harness, "Write.", "a")

        for stranger in STRANGERS:
            assert await changes.load(stranger, conversation_id) == ()
