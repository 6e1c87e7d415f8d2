from ingress.openapi.docs import render_docs

DOCUMENT = {
    "info": {"title": "Everturn", "version": "1"},
    "paths": {
        "/a/{b}": {
            "post": {
                "description": "Sends <b>it</b>.",
                "parameters": [{"name": "b", "in": "path", "schema": {"type": "string"}}],
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Receipt"}}}},
                "responses": {"202": {"description": "Accepted."}, "422": {"description": "A & B"}},
            }
        }
    },
    "components": {"schemas": {"Receipt": {"type": "object", "description": "What was <i>accepted</i>."}}},
}
EVENTS = {
    "chat.start": {"type": "object", "description": "A turn begins.", "properties": {"turn_id": {"type": "string"}}}
}


def test_every_operation_is_listed_with_its_input_and_answers() -> None:
    page = render_docs(DOCUMENT, EVENTS)

    for text in (
        "post",
        "/a/{b}",
        "<code>b</code>",
        "path.",
        "application/json",
        "Response 202",
        "Accepted.",
        "turn_id",
    ):
        assert text in page


def test_texts_of_the_document_are_escaped_and_nothing_foreign_is_loaded() -> None:
    page = render_docs(DOCUMENT, EVENTS)

    assert "Sends &lt;b&gt;it&lt;/b&gt;." in page
    assert "A &amp; B" in page
    assert "What was &lt;i&gt;accepted&lt;/i&gt;." in page
    assert "<script" not in page and "://" not in page
