"""The contract of MemorySearch and SnippetIndex as tests; a subclass or its module defines the fixture `desk`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from zlib import crc32

import pytest

from everturn.core.identity import Principal
from everturn.core.ids import ArtifactId, ConversationId, SignalId
from everturn.core.refs import completion_ref, named_artifact_ref, prompt_ref, round_ref, working_summary_ref
from everturn.files.model import Artifact, ArtifactKind
from everturn.memory.embedder import DIMENSIONS, Vector
from everturn.memory.search import (
    MAX_CATALOG_CHARS,
    MAX_CATALOG_TEXTS,
    CatalogQuery,
    CatalogText,
    EmbeddedSnippet,
    IndexJob,
    MemorySearch,
    QueryVector,
    Scope,
    Snippet,
    SnippetIndex,
    SnippetQuery,
    SnippetTarget,
)
from everturn.timeline.blocks import (
    AnchorBody,
    AttachmentBody,
    BlockDraft,
    BlockType,
    Body,
    CompletionBody,
    EventBody,
    PromptBody,
    SummaryBody,
    ThinkingBody,
    chain_blocks,
)
from everturn.turns.model import Claim
from everturn_testing.turns.harness import TS, Harness, closing, commit

ENCODER = "test-encoder"
THEN = datetime.fromisoformat(TS)
CLAIMED_AT_ONCE = 500


def point(*places: float) -> Vector:
    """A vector that begins with these numbers and continues with zeros."""
    return (*places, *[0.0] * (DIMENSIONS - len(places)))


def said(
    text: str, *, ref: str = "", anchors: str = "", ts: str = TS, target: SnippetTarget = SnippetTarget.USER
) -> Snippet:
    return Snippet(target, ref or named_artifact_ref("turn_x", f"n{crc32(text.encode())}"), text, ts, anchors)


@dataclass(frozen=True, slots=True)
class MemoryDesk:
    """A harness with the two ports over the same rows."""

    harness: Harness
    search: MemorySearch
    index: SnippetIndex

    @property
    def strangers(self) -> tuple[Principal, ...]:
        """Another user, another project, another tenant."""
        own = self.harness.principal
        return replace(own, user_id="bob"), replace(own, project="sales"), replace(own, tenant="rival")

    async def end_turn(self, conversation_id: ConversationId | None = None) -> Claim:
        receipt = await self.harness.say("Hello.", conversation_id)
        claim = await self.harness.claim(receipt.conversation_id)
        await self.harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq))
        await self.harness.leases.release(claim.lease, requeue=False)
        return claim

    async def job_of(self, claim: Claim) -> IndexJob:
        jobs = await self.index.claim_turns(CLAIMED_AT_ONCE)
        return next(job for job in jobs if job.turn_id == claim.turn_id)

    async def remember(
        self,
        *snippets: tuple[Snippet, Vector | None],
        encoder: str = ENCODER,
        conversation_id: ConversationId | None = None,
    ) -> IndexJob:
        """An ended turn with these snippets."""
        job = await self.job_of(await self.end_turn(conversation_id))
        embedded = [EmbeddedSnippet(snippet, vector) for snippet, vector in snippets]
        assert await self.index.save_snippets(job.principal, job, embedded, encoder=encoder)
        return job

    async def ask(self, query: SnippetQuery) -> list[str]:
        return [hit.text for hit in await self.search.find_snippets(self.harness.principal, query)]


def asking(job: IndexJob, text: str = "", vector: Vector | None = None, encoder: str = ENCODER) -> SnippetQuery:
    return SnippetQuery(
        scope=Scope(job.conversation_id),
        text=text,
        since=THEN - timedelta(days=400),
        until=THEN + timedelta(days=400),
        now=THEN,
        vector=None if vector is None else QueryVector(encoder, vector),
    )


class SnippetIndexContract:
    """Which turns can be indexed, and when."""

    async def test_an_ended_turn_can_be_indexed(self, desk: MemoryDesk) -> None:
        open_claim = await desk.harness.start_turn()
        ended = await desk.end_turn()

        jobs = {job.turn_id: job for job in await desk.index.claim_turns(CLAIMED_AT_ONCE)}

        assert open_claim.turn_id not in jobs
        assert ended.turn_id is not None
        assert jobs[ended.turn_id] == IndexJob(
            replace(desk.harness.principal, roles=jobs[ended.turn_id].principal.roles),
            ended.lease.conversation_id,
            ended.turn_id,
            1,
        )

    async def test_ended_turns_are_counted_until_they_are_indexed(self, desk: MemoryDesk) -> None:
        job = await desk.remember((said("zephyr"), None))
        here, who = Scope(job.conversation_id), desk.harness.principal
        assert await desk.search.count_unindexed(who, here) == 0
        ended = await desk.end_turn(job.conversation_id)
        await desk.harness.start_turn()

        assert await desk.search.count_unindexed(who, here) == 1
        assert await desk.search.count_unindexed(who, Scope(job.conversation_id, ended.turn_id)) == 0
        assert await desk.search.count_unindexed(who, Scope()) >= 1
        assert [await desk.search.count_unindexed(other, here) for other in desk.strangers] == [0, 0, 0]

    async def test_a_claimed_turn_is_not_claimed_again_at_once(self, desk: MemoryDesk) -> None:
        await desk.job_of(await desk.end_turn())

        assert await desk.index.claim_turns(CLAIMED_AT_ONCE) == ()

    async def test_the_texts_of_a_turn_are_loaded_for_the_index(self, desk: MemoryDesk) -> None:
        claim = await desk.harness.start_turn()
        turn = claim.turn_id
        assert turn is not None
        drafts = [
            BlockDraft(turn, 0, BlockType.USER_PROMPT, prompt_ref(turn), PromptBody(text="Why?"), TS),
            BlockDraft(turn, 1, BlockType.THINKING, round_ref(turn, 1, "thinking.0"), ThinkingBody(text="Hm."), TS),
            BlockDraft(turn, 1, BlockType.COMPLETION, completion_ref(turn, 1), CompletionBody(text="So."), TS),
            BlockDraft(turn, 1, BlockType.WORKING_SUMMARY, working_summary_ref(turn), SummaryBody(text="Goal"), TS),
        ]
        blocks = chain_blocks(drafts, next_seq=claim.next_seq, last_hash=claim.last_hash)
        await desk.harness.timelines.commit(claim.lease, commit(claim, blocks))
        await desk.harness.timelines.commit(claim.lease, closing(claim, seen_inbox=claim.inbox_seq, after=blocks))

        conversation_id = claim.lease.conversation_id
        found = await desk.index.load_texts(desk.harness.principal, conversation_id, turn)
        strangers = [await desk.index.load_texts(who, conversation_id, turn) for who in desk.strangers]

        assert found == (blocks[0], blocks[2], blocks[3])
        assert strangers == [()] * 3

    async def test_saving_again_replaces_what_was_saved(self, desk: MemoryDesk) -> None:
        job = await desk.remember((said("first zebra"), None))
        embedded = EmbeddedSnippet(said("second zebra"), None)

        assert await desk.index.save_snippets(job.principal, job, [embedded], encoder=ENCODER)

        assert await desk.ask(asking(job, "zebra")) == ["second zebra"]

    async def test_a_stranger_can_not_index_a_turn(self, desk: MemoryDesk) -> None:
        job = await desk.remember((said("zebra"), None))

        for who in desk.strangers:
            assert not await desk.index.save_snippets(who, job, [EmbeddedSnippet(said("x"), None)], encoder=ENCODER)

        assert await desk.ask(asking(job, "zebra x")) == ["zebra"]

    async def test_a_turn_without_snippets_is_marked_as_indexed(self, desk: MemoryDesk) -> None:
        await desk.remember()

        assert await desk.index.claim_turns(CLAIMED_AT_ONCE) == ()


class MemorySearchContract:
    """What is found, and in which order."""

    async def test_the_nearest_vectors_come_first_up_to_the_limit(self, desk: MemoryDesk) -> None:
        job = await desk.remember(*((said(f"text {n}"), point(1.0, n / 10)) for n in range(10)))
        query = replace(asking(job, vector=point(1.0, -1.0)), limit=4)

        assert await desk.ask(query) == ["text 0", "text 1", "text 2", "text 3"]

    async def test_only_vectors_of_the_same_encoder_are_compared(self, desk: MemoryDesk) -> None:
        job = await desk.remember((said("a heron"), point(1.0)), encoder="old-encoder")
        await desk.remember((said("a stork"), point(1.0)), conversation_id=job.conversation_id)

        assert await desk.ask(asking(job, "bird", point(1.0))) == ["a stork"]
        assert "a heron" in await desk.ask(asking(job, "heron", point(1.0)))

    async def test_a_match_by_meaning_and_words_comes_first(self, desk: MemoryDesk) -> None:
        job = await desk.remember(
            (said("the zephyr project"), point(0.9, 0.4)),
            (said("something else"), point(1.0)),
            (said("zephyr"), None),
        )

        assert (await desk.ask(asking(job, "zephyr project", point(1.0))))[0] == "the zephyr project"

    async def test_anchors_weigh_more_than_text(self, desk: MemoryDesk) -> None:
        job = await desk.remember(
            (said("quarterly figures quarterly figures"), None),
            (said("what we did", anchors="Quarterly figures"), None),
            (said("nothing of the kind"), None),
        )

        assert await desk.ask(asking(job, "quarterly figures")) == [
            "what we did",
            "quarterly figures quarterly figures",
        ]

    async def test_a_recent_text_comes_before_an_old_equal_one(self, desk: MemoryDesk) -> None:
        old, new = "2025-11-01T12:00:00.000Z", TS
        job = await desk.remember((said("kiwi b", ts=new), None), (said("kiwi a", ts=old), None))
        other = await desk.remember((said("plum a", ts=old), None), (said("plum b", ts=new), None))

        assert await desk.ask(asking(job, "kiwi")) == ["kiwi b", "kiwi a"]
        assert await desk.ask(asking(other, "plum")) == ["plum b", "plum a"]

    @pytest.mark.parametrize("count", [40, 60])
    async def test_a_rare_word_weighs_more_than_common_words(self, desk: MemoryDesk, count: int) -> None:
        job = await desk.remember(
            (said("a zebra", ts="2025-11-01T12:00:00.000Z"), None),
            *((said(f"what did we say about the report {n}"), None) for n in range(count)),
        )

        found = await desk.ask(asking(job, "what did we say about the zebra report"))

        assert found[0] == "a zebra"
        assert len(found) == 10

    async def test_a_question_of_common_words_finds_texts(self, desk: MemoryDesk) -> None:
        job = await desk.remember(*((said(f"about the report {n}"), None) for n in range(60)))

        assert len(await desk.ask(asking(job, "about the"))) == 10

    async def test_the_excepted_turn_is_not_found(self, desk: MemoryDesk) -> None:
        job = await desk.remember((said("lemon one"), point(1.0)))
        other = await desk.remember((said("lemon two"), point(1.0)), conversation_id=job.conversation_id)
        query = replace(asking(job, "lemon", point(1.0)), scope=Scope(job.conversation_id, other.turn_id))

        assert await desk.ask(query) == ["lemon one"]

    async def test_targets_and_times_narrow_the_search(self, desk: MemoryDesk) -> None:
        job = await desk.remember(
            (said("mango user"), point(1.0)),
            (said("mango notes", target=SnippetTarget.NOTES), point(1.0)),
            (said("mango later", ts="2026-04-01T00:00:00.000Z"), point(1.0)),
        )
        query = asking(job, "mango", point(1.0))

        assert await desk.ask(replace(query, targets=frozenset({SnippetTarget.NOTES}))) == ["mango notes"]
        assert await desk.ask(replace(query, since=THEN + timedelta(days=1))) == ["mango later"]
        assert set(await desk.ask(replace(query, until=datetime.fromisoformat("2026-04-01T00:00:00Z")))) == {
            "mango user",
            "mango notes",
        }

    async def test_only_the_best_snippet_of_a_ref_is_found(self, desk: MemoryDesk) -> None:
        job = await desk.remember(
            (said("papaya", ref="fi:x"), None), (said("papaya tree", ref="fi:x"), None), (said("papaya pie"), None)
        )

        assert sorted(await desk.ask(asking(job, "papaya tree"))) == ["papaya pie", "papaya tree"]

    async def test_all_conversations_of_a_person_are_searched_equally(self, desk: MemoryDesk) -> None:
        job = await desk.remember(*((said(f"walnut {n}"), point(1.0, n / 10)) for n in range(5)))
        await desk.remember((said("walnut other"), point(1.0, 5.0)))
        query = replace(asking(job, "walnut", point(1.0)), scope=Scope(), per_conversation=2)

        found = await desk.ask(query)

        assert sorted(text == "walnut other" for text in found) == [False, False, True]

    async def test_strangers_find_nothing(self, desk: MemoryDesk) -> None:
        job = await desk.remember((said("secret fig"), point(1.0)))
        queries: Sequence[SnippetQuery] = (
            asking(job, "secret fig", point(1.0)),
            replace(asking(job, "secret fig", point(1.0)), scope=Scope()),
        )

        for who in desk.strangers:
            assert [await desk.search.find_snippets(who, query) for query in queries] == [(), ()]
            assert (await desk.search.load_catalog(who, CatalogQuery(Scope(job.conversation_id)))).total == 0

    async def test_unusual_questions_find_nothing_and_raise_nothing(self, desk: MemoryDesk) -> None:
        job = await desk.remember((said("a\x00b \\ ' \" { } %"), None))

        for text in ("", "''", "\\", "\x00", "!|&:*()", "🦊", "x" * 5000):
            assert await desk.ask(asking(job, text)) == []


class CatalogContract:
    """Turns by position and time."""

    async def test_turns_come_in_order_with_what_was_said(self, desk: MemoryDesk) -> None:
        claims = [await desk.end_turn()]
        conversation_id = claims[0].lease.conversation_id
        claims += [await desk.end_turn(conversation_id) for _ in range(3)]
        ids = [claim.turn_id for claim in claims]
        scope = Scope(conversation_id, ids[3])

        page = await desk.search.load_catalog(desk.harness.principal, CatalogQuery(scope, limit=2))
        newest = await desk.search.load_catalog(desk.harness.principal, CatalogQuery(scope, newest_first=True, limit=1))
        second = await desk.search.load_catalog(desk.harness.principal, CatalogQuery(scope, skip=1, limit=1))

        assert ([turn.turn_id for turn in page.turns], page.total) == (ids[:2], 3)
        assert [turn.ordinal for turn in page.turns] == [1, 2]
        assert [turn.turn_id for turn in newest.turns] == [ids[2]]
        assert [turn.turn_id for turn in second.turns] == [ids[1]]

    async def test_turns_of_a_time_are_found(self, desk: MemoryDesk) -> None:
        conversation_id = (await desk.end_turn()).lease.conversation_id
        whole = CatalogQuery(Scope(conversation_id))
        (turn,) = (await desk.search.load_catalog(desk.harness.principal, whole)).turns
        after = turn.created_at + timedelta(microseconds=1)

        async def count(since: datetime | None, until: datetime | None) -> int:
            query = replace(whole, since=since, until=until)
            return (await desk.search.load_catalog(desk.harness.principal, query)).total

        assert await count(turn.created_at, after) == 1
        assert await count(after, None) == 0
        assert await count(None, turn.created_at) == 0

    async def test_a_catalog_has_the_beginnings_of_some_texts(self, desk: MemoryDesk) -> None:
        claim = await desk.harness.start_turn()
        turn = claim.turn_id
        assert turn is not None
        long = 'a "quoted" \\ line\n\x00\x01 🦊 ' * 40_000
        form = EventBody(
            signal_id=SignalId("sig_1"), kind="form", text="Sent.", payload={"text": "not this", "to": ["text"]}
        )
        file = Artifact(
            id=ArtifactId("art_1"), turn_id=turn, ref="fi:x", rn="rn", kind=ArtifactKind.FILE, filename="a.csv",
            path="a.csv", mime="text/csv", size=5, sha256="0", object_key="k", visibility="external", verdict="clean",
        )  # fmt: skip
        bodies: list[tuple[BlockType, Body]] = [
            (BlockType.USER_PROMPT, PromptBody(text=long)),
            (BlockType.ATTACHMENT_META, AttachmentBody(artifact=file)),
            (BlockType.EXTERNAL_EVENT, form),
            *((BlockType.ANCHOR, AnchorBody(text=f"anchor {n}", path="p")) for n in range(MAX_CATALOG_TEXTS + 2)),
            (BlockType.COMPLETION, CompletionBody(text="An answer.", followups=("More?",))),
            (BlockType.COMPLETION, CompletionBody(text=long)),
            (BlockType.WORKING_SUMMARY, SummaryBody(text="Goal")),
        ]
        drafts = [
            BlockDraft(turn, 1, kind, round_ref(turn, 1, f"part.{n}"), body, TS)
            for n, (kind, body) in enumerate(bodies)
        ]
        blocks = chain_blocks(drafts, next_seq=claim.next_seq, last_hash=claim.last_hash)
        await desk.harness.timelines.commit(claim.lease, commit(claim, blocks))

        async def list_texts(*targets: SnippetTarget) -> list[tuple[str, str]]:
            query = CatalogQuery(Scope(claim.lease.conversation_id), targets=frozenset(targets))
            (found,) = (await desk.search.load_catalog(desk.harness.principal, query)).turns
            return [(said.target.value, said.text) for said in found.texts]

        user, assistant, summary = SnippetTarget.USER, SnippetTarget.ASSISTANT, SnippetTarget.SUMMARY
        begun = long[:MAX_CATALOG_CHARS]
        assert await list_texts(user, assistant, summary) == [
            ("user", begun),
            ("user", "Sent."),
            ("assistant", begun),
            ("summary", "Goal"),
        ]
        assert await list_texts(SnippetTarget.ATTACHMENT) == [("attachment", "a.csv (text/csv, 5 bytes)")]
        assert [text for _, text in await list_texts(SnippetTarget.NOTES)] == [
            f"anchor {n}" for n in range(MAX_CATALOG_TEXTS)
        ]

    async def test_a_turn_without_the_targets_is_listed_by_its_prompt(self, desk: MemoryDesk) -> None:
        claim = await desk.harness.start_turn()
        turn = claim.turn_id
        assert turn is not None
        prompt = BlockDraft(turn, 0, BlockType.USER_PROMPT, prompt_ref(turn), PromptBody(text="Why?"), TS)
        blocks = chain_blocks([prompt], next_seq=claim.next_seq, last_hash=claim.last_hash)
        await desk.harness.timelines.commit(claim.lease, commit(claim, blocks))
        query = CatalogQuery(Scope(claim.lease.conversation_id), targets=frozenset({SnippetTarget.SUMMARY}))

        (found,) = (await desk.search.load_catalog(desk.harness.principal, query)).turns

        assert found.texts == (CatalogText(SnippetTarget.USER, prompt.ref, "Why?", TS),)

    async def test_all_conversations_of_the_person_have_one_catalog(self, desk: MemoryDesk) -> None:
        one, other = await desk.end_turn(), await desk.end_turn()

        query = CatalogQuery(Scope(), newest_first=True, limit=50)
        page = await desk.search.load_catalog(desk.harness.principal, query)

        found = [turn.turn_id for turn in page.turns]
        assert found.index(other.turn_id) < found.index(one.turn_id)  # type: ignore[arg-type]
