from ingress.health.docs import render_docs

DOCUMENT = {
    "info": {"title": "Everturn", "version": "1"},
    "paths": {
        "/a/{b}": {
            "post": {
                "description": "Sends <b>it</b>.",
                "parameters": [{"name": "b", "in": "path"}],
                "requestBody": {"content": {"application/json": {}}},
                "responses": {"202": {"description": "Accepted."}, "422": {"description": "A & B"}},
            }
        }
    },
}


def test_every_operation_is_told_with_what_it_takes_and_answers() -> None:
    page = render_docs(DOCUMENT)

    for told in ("post", "/a/{b}", "<code>b</code> (path)", "application/json", "<code>202</code> Accepted."):
        assert told in page


def test_texts_of_the_document_are_escaped_and_nothing_foreign_is_loaded() -> None:
    page = render_docs(DOCUMENT)

    assert "Sends &lt;b&gt;it&lt;/b&gt;." in page
    assert "A &amp; B" in page
    assert "<script" not in page and "://" not in page
