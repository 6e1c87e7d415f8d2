"""Results are JSON that can be read by lines."""

import json

from chat_proc.workspace.naming import render_result


def test_list_items_have_their_own_lines() -> None:
    result = {"ok": True, "hits": [{"path": "a", "text": "é\n"}, {"path": "b"}], "missing": [], "error": None}

    text = render_result(result)

    assert json.loads(text) == {"ok": True, "hits": result["hits"]}
    assert text.split("\n")[2:] == ['{"path": "a", "text": "é\\n"},', '{"path": "b"}]}']
