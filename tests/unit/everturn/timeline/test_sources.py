import pytest

from everturn.timeline.sources import Citation, Source, build_citations, try_source


@pytest.mark.parametrize(
    ("url", "mime", "web", "evidence"),
    [
        ("https://a.example/x", "text/html", True, True),
        ("HTTP://a.example", "", True, True),
        ("https://a.example/p.png", "image/png", True, False),
        ("javascript:alert(1)", "", False, False),
        ("https://", "", False, False),
        ("https://a.example/\nx", "", False, False),
        (" https://a.example", "", False, False),
        ("", "", False, False),
        ("ks:docs/a.md", "", False, True),
    ],
)
def test_documents_and_pages_are_evidence(url: str, mime: str, *, web: bool, evidence: bool) -> None:
    source = Source(1, "t", url, mime=mime)

    assert (source.web_url is not None, source.is_evidence) == (web, evidence)


def test_a_row_with_the_fields_of_the_pool_becomes_a_source() -> None:
    row = {
        "sid": 3,
        "title": "T",
        "url": "https://a.example",
        "source_type": "manual",
        "objective_relevance": 1,
        "published_time_iso": "2026-01-01T00:00:00Z",
        "favicon_url": "https://a.example/f.ico",
        "text": "body",
        "mime": "text/html",
        "unknown": object(),
    }

    assert try_source(row) == Source(
        3,
        "T",
        "https://a.example",
        "manual",
        1.0,
        "2026-01-01T00:00:00Z",
        "https://a.example/f.ico",
        "body",
        "text/html",
    )


def test_a_row_with_wrong_types_keeps_what_is_usable() -> None:
    row = {"sid": "7", "title": None, "url": 5, "source_type": "?", "objective_relevance": True}

    assert try_source(row) == Source(7, "", "")


@pytest.mark.parametrize("sid", [None, 0, -1, "x", True, 1.5, "9" * 50])
def test_a_row_without_a_usable_sid_is_none(sid: object) -> None:
    assert try_source({"sid": sid, "title": "t"}) is None


def test_only_evidence_is_cited_and_as_it_is_now() -> None:
    rows = [
        Source(3, "Three", "https://a.example/3", published_time_iso="2026-01-01", text="whole", key="k"),
        Source(1, "One", "https://a.example/1", favicon_url="https://a.example/f.ico"),
        Source(2, "Picture", "https://a.example/2.png", mime="image/png"),
        Source(4, "File", "fi:turn_1.files/a.png", "file", mime="image/png"),
    ]

    assert build_citations(rows, {1, 2, 3, 4, 9}) == (
        Citation(sid=1, title="One", url="https://a.example/1", favicon_url="https://a.example/f.ico"),
        Citation(sid=3, title="Three", url="https://a.example/3", published_time_iso="2026-01-01"),
    )
