"""Refs find what they name, wherever it is stored, and say why when there is nothing."""

from typing import Any

import pytest

from chat_proc.catalog.tool import SourcePool, ToolContext
from chat_proc.tools.context.resolve import (
    Found,
    FoundFile,
    FoundSources,
    FoundStored,
    FoundText,
    Missing,
    ReadPorts,
    Resolver,
)
from everturn.core import refs
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId, PlanId, TurnId
from everturn.core.refs import qualify_text
from everturn.files.model import ArtifactKind
from everturn.timeline.blocks import (
    REASONING_INSTANCE,
    AnchorBody,
    BlockType,
    NotesBody,
    PlanAckBody,
    PlanBody,
    StoredText,
    SummaryBody,
    ThinkingBody,
    ToolResultBody,
)
from everturn.timeline.plans import PlanMoment, mark_steps, new_plan
from everturn.timeline.sources import Source
from everturn_testing.files.artifacts import MemoryArtifacts
from everturn_testing.files.stored_files import OWNER, StoredFiles
from everturn_testing.in_memory_platform import ConversationRow, MemoryPlatform
from everturn_testing.source_pool import MemorySourcePool
from everturn_testing.timeline import NOW, TimelineBuilder, build_file
from everturn_testing.turns.conversation_reader import MemoryConversationReader
from everturn_testing.turns.live_turn import RecordingTurn
from everturn_testing.turns.timelines import MemoryTimelines

CSV = build_file("turn_1", "sales.csv", b"a,b", mime="text/csv")
OLD = build_file("turn_1", "report.md", b"old", kind=ArtifactKind.FILE)
NEW = build_file("turn_1", "report.md", b"new", kind=ArtifactKind.FILE)
WHOLE = StoredText(object_key="conv_1/" + "a" * 64, sha256="a" * 64, chars=30_000, bytes=30_000)
BOB = Principal("acme", "main", "bob")


class Pool:
    """Implements SourcePool with three rows."""

    rows = tuple(Source(sid, f"Title {sid}", f"https://example.com/{sid}") for sid in (1, 2, 3))

    def claim(self, drafts: Any) -> tuple[Source, ...]:
        raise NotImplementedError

    async def load_text(self, sid: int) -> str:
        return f"text {sid}"


def play_turn(turn_id: str = "turn_1") -> TimelineBuilder:
    timeline = TimelineBuilder()
    timeline.start_turn(turn_id, "Hello", CSV)
    timeline.start_round()
    reasoning = ThinkingBody(text="Deep.", instance=REASONING_INSTANCE)
    timeline.add(BlockType.THINKING, f"ar:{turn_id}.round.1.thinking.{REASONING_INSTANCE}", reasoning)
    timeline.add(BlockType.NOTES, f"ar:{turn_id}.react.notes.call_1", NotesBody(text="working"))
    timeline.call("call_1", "react.write", {"content": "x" * 5000})
    timeline.result("call_1", "react.write", "written", OLD)
    timeline.result("call_2", "react.write", "y" * 3000, NEW)
    body = ToolResultBody(tool_id="demo", status="ok", text="preview", whole=WHOLE)
    timeline.add(BlockType.TOOL_RESULT, refs.result_ref(turn_id, "call_3"), body)
    (plan,) = new_plan([], plan_id=PlanId("plan_a"), labels=["a", "b"], moment=PlanMoment(TurnId(turn_id), NOW))
    marked = mark_steps(plan, "✓ [1]", moment=PlanMoment(TurnId(turn_id), NOW))
    assert marked is not None
    for snapshot in (plan, marked):
        timeline.add(BlockType.PLAN, snapshot.snapshot_ref, PlanBody(plan=snapshot))
    timeline.add(BlockType.PLAN_ACK, refs.plan_ack_ref(turn_id, 1), PlanAckBody(plan_id="plan_a", text="✓ [1] a"))
    timeline.add(BlockType.ANCHOR, refs.round_ref(turn_id, 1, "note"), AnchorBody(text="[D] blue", tags=("D",)))
    timeline.say("followup", "sig_1", "and more")
    timeline.answer("first", n=1)
    timeline.answer("second", n=2)
    timeline.add(BlockType.WORKING_SUMMARY, f"ws:{turn_id}.conv.working.summary", SummaryBody(text="Goal: fi:turn_1.x"))
    return timeline


class Finder:
    """Resolves as a call in `turn_9` of conversation `conv_1` would, with these blocks at hand."""

    def __init__(self, platform: MemoryPlatform, blocks: list[Any], pool: SourcePool | None = None) -> None:
        self.reader = MemoryConversationReader(platform)
        ports = ReadPorts(MemoryArtifacts(platform), self.reader, MemoryTimelines(platform))
        context = ToolContext(
            OWNER,
            ConversationId("conv_1"),
            TurnId("turn_9"),
            1,
            blocks=blocks,
            now=NOW,
            pool=pool or MemorySourcePool(),
            live=RecordingTurn(),
        )
        self.resolver = Resolver(context, ports)

    async def find(self, text: str) -> Found:
        return await self.resolver.find(text)


def keep(platform: MemoryPlatform, conversation_id: str, timeline: TimelineBuilder, owner: Principal = OWNER) -> None:
    row = ConversationRow(ConversationId(conversation_id), owner)
    row.blocks, row.artifacts = timeline.blocks, [CSV, OLD, NEW]
    platform.conversations[row.id] = row


@pytest.fixture
def loaded(platform: MemoryPlatform) -> Finder:
    """All blocks are in memory and nothing is stored."""
    return Finder(platform, play_turn().blocks)


@pytest.fixture
def stored_only(platform: MemoryPlatform) -> Finder:
    """The turn is in the store, and a later turn is all that is in memory."""
    keep(platform, "conv_1", play_turn())
    later = TimelineBuilder()
    later.start_turn("turn_9", "And now?")
    return Finder(platform, later.blocks)


@pytest.fixture
def elsewhere(platform: MemoryPlatform) -> Finder:
    """The turn is in another conversation of the same person, and one of somebody else."""
    keep(platform, "conv_2", play_turn())
    keep(platform, "conv_bob", play_turn(), BOB)
    later = TimelineBuilder()
    later.start_turn("turn_9", "And there?")
    return Finder(platform, later.blocks)


TEXTS = [
    ("ar:{}turn_1.user.prompt", "Hello"),
    ("ar:{}turn_1.assistant.completion", "second"),
    ("ar:{}turn_1.assistant.completion.1", "first"),
    ("ar:{}turn_1.external.followup.sig_1", "and more"),
    ("ar:{}turn_1.react.notes.call_1", "working"),
    ("ar:{}turn_1.round.1.note", "[D] blue"),
    ("ar:{}turn_1.react.plan.ack.1", "✓ [1] a"),
    ("tc:{}turn_1.call_1.call", 'react.write\n{"content":"' + "x" * 5000 + '"}'),
    ("ar:{}turn_1.react.plan.plan_a", "plan_id=plan_a (current)\n  ✓ [1] a\n  □ [2] b"),
    ("ar:{}plan.latest:plan_a", "plan_id=plan_a (current)\n  ✓ [1] a\n  □ [2] b"),
]


@pytest.mark.parametrize("owner", ["", "conv_1."])
@pytest.mark.parametrize(("ref", "text"), TEXTS)
async def test_a_loaded_text_is_found_without_the_store(loaded: Finder, ref: str, text: str, owner: str) -> None:
    found = await loaded.find(ref.format(owner))

    assert isinstance(found, FoundText)
    assert (found.ref, found.text) == (ref.format(""), text)
    assert found.block is not None
    assert loaded.reader.reads == 0


@pytest.mark.parametrize("owner", ["", "conv_1."])
@pytest.mark.parametrize(("ref", "text"), TEXTS)
async def test_a_text_before_the_last_compaction_is_found_in_the_store(
    stored_only: Finder, ref: str, text: str, owner: str
) -> None:
    found = await stored_only.find(ref.format(owner))

    assert isinstance(found, FoundText)
    assert (found.ref, found.text) == (ref.format(""), text)


@pytest.mark.parametrize(("ref", "text"), TEXTS)
async def test_a_text_of_another_conversation_of_the_same_person_is_found(
    elsewhere: Finder, ref: str, text: str
) -> None:
    found = await elsewhere.find(ref.format("conv_2."))

    assert isinstance(found, FoundText)
    assert (found.ref, found.text) == (ref.format("conv_2."), text)


@pytest.mark.parametrize(("ref", "_"), TEXTS)
async def test_data_of_another_person_is_missing(elsewhere: Finder, ref: str, _: str) -> None:
    foreign = await elsewhere.find(ref.format("conv_bob."))

    assert isinstance(foreign, Missing)
    assert foreign == await elsewhere.find(ref.format("conv_none."))


@pytest.mark.parametrize(
    "ref", ["fi:conv_bob.turn_1.files/report.md", "so:conv_bob.sources_pool[1]", "ar:conv_bob.turn_1.react.turn.index"]
)
async def test_another_persons_files_sources_and_indexes_are_missing(elsewhere: Finder, ref: str) -> None:
    foreign = await elsewhere.find(ref)

    assert isinstance(foreign, Missing)
    assert foreign == await elsewhere.find(ref.replace("conv_bob", "conv_none"))


async def test_a_ref_of_another_conversation_is_not_taken_for_one_of_ours(loaded: Finder) -> None:
    assert isinstance(await loaded.find("ar:conv_2.turn_1.user.prompt"), Missing)


async def test_refs_inside_a_text_of_another_conversation_can_be_followed(elsewhere: Finder) -> None:
    found = await elsewhere.find("ws:conv_2.turn_1.conv.working.summary")

    assert isinstance(found, FoundText)
    assert found.text == "Goal: fi:conv_2.turn_1.x"


@pytest.mark.parametrize("finder", ["loaded", "stored_only"])
async def test_a_result_that_is_stored_whole_is_found_as_its_object(
    request: pytest.FixtureRequest, finder: str
) -> None:
    found = await request.getfixturevalue(finder).find("tc:turn_1.call_3.result")

    assert found == FoundStored("tc:turn_1.call_3.result", WHOLE)


@pytest.mark.parametrize("finder", ["loaded", "stored_only"])
@pytest.mark.parametrize(
    ("text", "sha256"),
    [
        (CSV.ref, CSV.sha256),
        ("turn_1/attachments/sales.csv", CSV.sha256),
        ("fi:conv_1.turn_1.user.attachments/sales.csv", CSV.sha256),
        (NEW.ref, NEW.sha256),
        ("turn_1/files/report.md", NEW.sha256),
    ],
)
async def test_a_file_is_found_by_ref_or_path_with_its_last_content(
    request: pytest.FixtureRequest, finder: str, text: str, sha256: str
) -> None:
    found = await request.getfixturevalue(finder).find(text)

    assert isinstance(found, FoundFile)
    assert found.artifact.sha256 == sha256


async def test_a_file_of_another_conversation_of_the_same_person_is_found(elsewhere: Finder) -> None:
    found = await elsewhere.find("conv_2/turn_1/files/report.md")

    assert isinstance(found, FoundFile)
    assert found.ref == "fi:conv_2.turn_1.files/report.md"


async def test_a_path_without_its_turn_is_pointed_to_the_turn_that_has_it(loaded: Finder) -> None:
    found = await loaded.find("files/report.md")

    assert found == Missing("there is no such file; an earlier turn has fi:turn_1.files/report.md")


async def test_the_index_of_a_turn_is_built_from_what_is_at_hand_or_stored(
    loaded: Finder, stored_only: Finder, elsewhere: Finder
) -> None:
    here = await loaded.find("ar:turn_1.react.turn.index")
    stored = await stored_only.find("ar:turn_1.react.turn.index")
    there = await elsewhere.find("ar:conv_2.turn_1.react.turn.index")

    assert isinstance(here, FoundText)
    assert here == stored
    assert "result=tc:turn_1.call_2.result" in here.text
    assert "react.thinking" not in here.text
    assert isinstance(there, FoundText)
    assert there.text == qualify_text(here.text, "conv_2")
    assert "result=tc:conv_2.turn_1.call_2.result" in there.text
    assert "Goal: fi:conv_2.turn_1.x" in there.text


async def test_sources_are_found_by_number_and_missing_ones_are_named(platform: MemoryPlatform) -> None:
    found = await Finder(platform, [], Pool()).find("so:sources_pool[7,3-2]")

    assert isinstance(found, FoundSources)
    assert [row.sid for row in found.rows] == [2, 3]
    assert found.absent == (7,)
    assert await found.load_text(3) == "text 3"


async def test_an_empty_pool_says_so(platform: MemoryPlatform) -> None:
    assert await Finder(platform, []).find("so:sources_pool[1-3]") == Missing("the source pool is empty")


async def test_sources_of_another_conversation_of_the_same_person_are_found(platform: MemoryPlatform) -> None:
    row = ConversationRow(ConversationId("conv_2"), OWNER)
    row.sources, row.source_texts = {1: Source(1, "There", "https://example.com")}, {1: "whole"}
    platform.conversations[row.id] = row

    found = await Finder(platform, []).find("so:conv_2.sources_pool[1]")

    assert isinstance(found, FoundSources)
    assert await found.load_text(1) == "whole"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ar:turn_9.user.prompt", "nothing is stored"),
        ("fi:turn_1.files/none.md", "no such file"),
        ("fi:turn_1.logs/run.txt", "no such file"),
        ("ar:plan.latest:plan_x", "no such plan"),
        ("ar:turn_x.react.turn.index", "nothing is stored"),
        ("so:sources_pool[a-b]", "is not a ref"),
        ("so:sources_pool[one]", "is not a ref"),
        ("/etc/passwd", "is not a ref"),
        ("", "is not a ref"),
    ],
)
async def test_what_is_not_there_is_explained(loaded: Finder, text: str, reason: str) -> None:
    found = await loaded.find(text)

    assert isinstance(found, Missing)
    assert reason in found.reason


async def test_files_that_came_with_signals_are_found(stored: StoredFiles) -> None:
    ref = str(refs.ExternalAttachmentRef("turn_1", "followup", "sig_1", "more.csv"))
    stored.remember(CSV.model_copy(update={"ref": ref}))

    found = await Finder(stored.platform, []).find("turn_1/external/followup/attachments/sig_1/more.csv")

    assert isinstance(found, FoundFile)


async def test_every_block_of_a_turn_reads_the_same_at_hand_and_from_the_store(
    loaded: Finder, stored_only: Finder
) -> None:
    names = {block.ref for block in play_turn().blocks}

    for name in sorted(names):
        here, stored = await loaded.find(name), await stored_only.find(name)
        assert not isinstance(here, Missing), name
        if isinstance(here, FoundText):
            here = FoundText(here.ref, here.text)
        if isinstance(stored, FoundText):
            stored = FoundText(stored.ref, stored.text)
        assert here == stored
