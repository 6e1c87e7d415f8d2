from everturn.memory.search import MAX_SNIPPET_CHARS, Snippet, SnippetTarget


def test_a_snippet_has_no_anchors_unless_some_are_given() -> None:
    snippet = Snippet(SnippetTarget.NOTES, "ar:x", "text", "2026-03-01T12:00:00.000Z")

    assert snippet.anchors == ""
    assert MAX_SNIPPET_CHARS == 1_000
    assert {str(target) for target in SnippetTarget} == {"user", "assistant", "summary", "notes", "attachment"}
