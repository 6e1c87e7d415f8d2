from datetime import UTC, datetime

from chat_proc.tools.memory.memsearch import (
    MAX_HITS_CHARS,
    build_found_hit,
    build_turn_hits,
    render_hits,
    spell_ref,
)
from everturn.core.ids import ConversationId, TurnId
from everturn.memory.search import CatalogText, CatalogTurn, FoundSnippet, SnippetTarget
from everturn_testing.timeline import NOW

HERE, THERE = ConversationId("conv_1"), ConversationId("conv_2")
MOMENT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def found(conversation_id: ConversationId, text: str = "text") -> FoundSnippet:
    return FoundSnippet(
        conversation_id, TurnId("turn_1"), SnippetTarget.USER, "ar:turn_1.user.prompt", text, MOMENT, 0.0312499
    )


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


def test_a_listed_turn_has_its_number_and_refs_to_read() -> None:
    said = CatalogText(SnippetTarget.USER, "ar:turn_1.user.prompt", "x" * 600, NOW)

    (hit,) = build_turn_hits(CatalogTurn(THERE, TurnId("turn_1"), 3, MOMENT, (said,)), HERE)

    assert (hit.role, hit.ordinal, hit.ref) == ("user", 3, "ar:conv_2.turn_1.user.prompt")
    assert hit.text == "x" * 500 + "..."


def test_hits_are_cut_to_what_a_result_shows() -> None:
    hits = [build_found_hit(found(HERE, "x" * 2_000), HERE)] * 50

    text, shown = render_hits(hits)

    assert len(text) <= MAX_HITS_CHARS
    assert 10 < shown < 20
    assert all(len(hit.text) == 503 for hit in hits)
