import pytest

from chat_proc.tools.web.web_search import MAX_ANSWER_BYTES, request_json
from everturn.core.errors import Unavailable
from everturn_testing.web_site import Answer, Site


async def test_an_object_is_answered(site: Site) -> None:
    assert await request_json("GET", site.json("/x", {"a": 1}), headers={}) == {"a": 1}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>", "not return JSON"),
        (b"[1]", "not return a JSON object"),
        (b" " * (MAX_ANSWER_BYTES + 1), "more than"),
    ],
)
async def test_another_answer_is_unavailable(site: Site, body: bytes, said: str) -> None:
    site.pages["/x"] = Answer(body)

    with pytest.raises(Unavailable, match=said):
        await request_json("GET", site.url("/x", "127.0.0.1"), headers={})


async def test_a_provider_that_is_not_there_is_unavailable(site: Site) -> None:
    with pytest.raises(Unavailable, match="can't be reached"):
        await request_json("GET", "http://127.0.0.1:1/", headers={})
