from datetime import UTC, datetime

from chat_proc.tools.memory.memsearch import (
    MAX_HITS_CHARS,
    MAX_HITS_OF_TURN,
    build_found_hit,
    build_turn_hits,
    render_hits,
    spell_ref,
)
from everturn.core import refs
from everturn.core.ids import ConversationId, TurnId
from everturn.memory.search import CatalogTurn, FoundSnippet, SnippetTarget
from everturn.timeline import bodies
from everturn.timeline.blocks import BlockType
from everturn_testing.timeline import NOW, TimelineBuilder, build_file

HERE, THERE = ConversationId("conv_1"), ConversationId("conv_2")
MOMENT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def found(conversation_id: ConversationId, text: str = "text") -> FoundSnippet:
    return FoundSnippet(
        conversation_id, TurnId("turn_1"), SnippetTarget.USER, "ar:turn_1.user.prompt", text, MOMENT, 0.0312499
    )


def listed(built: TimelineBuilder, *targets: SnippetTarget, conversation_id: ConversationId = HERE):
    turn = CatalogTurn(conversation_id, TurnId("turn_1"), 3, MOMENT, tuple(built.blocks))
    return build_turn_hits(turn, frozenset(targets), HERE)


def timeline(*summaries: str) -> TimelineBuilder:
    built = TimelineBuilder()
    built.start_turn("turn_1", "Why?", build_file("turn_1", "a.csv", b"a"))
    built.start_round()
    built.answer("First answer.", 1)
    built.answer("Last answer.", 2)
    for summary in summaries:
        built.add(BlockType.WORKING_SUMMARY, refs.working_summary_ref("turn_1"), bodies.SummaryBody(text=summary))
    return built


def test_a_hit_has_its_place_and_a_ref_to_read() -> None:
    assert build_found_hit(found(HERE), HERE).as_json() == {
        "turn_id": "turn_1",
        "ref": "ar:turn_1.user.prompt",
        "role": "user",
        "text": "text",
        "score": 0.0312,
        "ts": NOW,
        "turn_index_path": "ar:turn_1.react.turn.index",
    }


def test_refs_of_other_conversations_carry_the_conversation() -> None:
    hit = build_found_hit(found(THERE), HERE)

    assert hit.ref == "ar:conv_2.turn_1.user.prompt"
    assert hit.turn_index_path == "ar:conv_2.turn_1.react.turn.index"
    assert spell_ref("fi:turn_1.user.attachments/a b.csv", THERE) == "fi:conv_2.turn_1.user.attachments/a b.csv"
    assert spell_ref("ks:doc.md", THERE) == "ks:doc.md"
    assert listed(timeline(), SnippetTarget.USER, conversation_id=THERE)[0].ref == "ar:conv_2.turn_1.user.prompt"


def test_of_a_turn_the_last_summary_and_the_last_answer_are_shown() -> None:
    built = timeline("Goal: old", "Goal: new")

    hits = listed(built, SnippetTarget.SUMMARY, SnippetTarget.ASSISTANT, SnippetTarget.ATTACHMENT)

    assert [(hit.role, hit.text) for hit in hits] == [
        ("attachment", "a.csv (text/plain, 1 bytes)"),
        ("assistant", "Last answer."),
        ("summary", "Goal: new"),
    ]
    assert {hit.ordinal for hit in hits} == {3}


def test_a_turn_without_a_summary_is_shown_by_its_prompt() -> None:
    assert [(hit.role, hit.text) for hit in listed(timeline(), SnippetTarget.SUMMARY)] == [("user", "Why?")]


def test_one_turn_does_not_fill_the_whole_answer() -> None:
    built = timeline()
    for n in range(20):
        built.say("followup", f"sig_{n}", f"and {n}?")

    assert len(listed(built, SnippetTarget.USER)) == MAX_HITS_OF_TURN


def test_hits_are_cut_to_what_a_result_shows() -> None:
    hits = [build_found_hit(found(HERE, "x" * 2_000), HERE)] * 50

    text, shown = render_hits(hits)

    assert len(text) <= MAX_HITS_CHARS
    assert 10 < shown < 20
    assert all(len(hit.text) == 503 for hit in hits)
