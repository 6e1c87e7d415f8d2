from everturn.core.identity import Principal
from everturn.memory.postgres_search import MAX_QUERY_WORDS, build_lexemes, build_query_lexemes
from everturn.memory.search import Snippet, SnippetTarget

ANN = Principal("acme", "support", "ann")


def snippet(text: str, anchors: str = "") -> Snippet:
    return Snippet(SnippetTarget.USER, "ar:x", text, "2026-03-01T12:00:00.000Z", anchors)


def test_the_word_index_has_separate_entries_for_each_person() -> None:
    people = [ANN, Principal("acme", "support", "bob"), Principal("acme", "sales", "ann"), Principal("a", "b", "c")]

    entries = {build_lexemes(who, snippet("zebra"))[0] for who in people}

    assert len(entries) == len(people)


def test_anchors_are_entries_of_their_own_and_words_besides() -> None:
    found = [entry[10:] for entry in build_lexemes(ANN, snippet("Grey zebra", "Zebra crossing"))]

    assert found == [":zebra", ":crossing", ":grey", "!zebra", "!crossing"]


def test_a_question_is_searched_by_its_index_words() -> None:
    stored = build_lexemes(ANN, snippet("zebra", "zebra"))

    lexemes, weights = build_query_lexemes(ANN, "ZEBRA?")

    assert lexemes == stored
    assert weights == [1.0, 3.0]


def test_a_long_question_is_cut() -> None:
    lexemes, weights = build_query_lexemes(ANN, " ".join(f"w{n}" for n in range(500)))

    assert len(lexemes) == len(weights) == 2 * MAX_QUERY_WORDS
