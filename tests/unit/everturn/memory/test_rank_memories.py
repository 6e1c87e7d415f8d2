from everturn.memory.user_memories import Candidate, make_memory_id, rank_memories
from everturn_testing.memory.user_memories_contract import remembered


def texts(*candidates: Candidate, question: str) -> list[str]:
    return [memory.text for memory in rank_memories(candidates, question)]


def test_equal_memories_have_one_id() -> None:
    assert make_memory_id("Prefers  Café") == make_memory_id(" prefers cafe")
    assert make_memory_id("a b") != make_memory_id("ab")


def test_matching_words_and_meaning_outranks_one_of_them() -> None:
    found = texts(
        Candidate(remembered("likes tea"), 0.9),
        Candidate(remembered("drinks tea at noon"), 0.95),
        Candidate(remembered("owns a car"), 0.1),
        Candidate(remembered("tea house"), None),
        question="tea at noon",
    )

    assert found[0] == "drinks tea at noon"
    assert set(found) == {"likes tea", "drinks tea at noon", "owns a car", "tea house"}


def test_without_vectors_only_common_words_match() -> None:
    candidates = [Candidate(remembered("likes tea"), None), Candidate(remembered("owns a car"), None)]

    assert texts(*candidates, question="TEA?") == ["likes tea"]
    assert texts(*candidates, question="label") == ["likes tea", "owns a car"]


def test_without_a_question_memories_are_ordered_by_hotness() -> None:
    candidates = [Candidate(remembered("plain"), None), Candidate(remembered("pinned", pinned=True), None)]

    assert texts(*candidates, question="") == ["pinned", "plain"]
