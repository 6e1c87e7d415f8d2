from typing import cast

import pytest

from chat_proc.channels.streaming import build_syntax, find_citations
from everturn_sdk.channels import ChannelFormat, ChannelSpec, ChannelSubscribers


@pytest.mark.parametrize(
    ("name", "written", "body", "cites"),
    [
        ("answer", "markdown", "prose", "markdown"),
        ("page", "html", "prose", "html"),
        ("usage", "json", "json", None),
        ("program", "code", "code", None),
        ("code", "text", "code", "text"),
    ],
)
def test_the_format_says_how_a_channel_is_read_and_cited(
    name: str, written: ChannelFormat, body: str, cites: str | None
) -> None:
    spec = ChannelSpec(name, written)

    assert (build_syntax(spec).body, find_citations(spec)) == (body, cites)


def test_citations_can_be_left_as_they_are() -> None:
    assert find_citations(ChannelSpec("answer", replace_citations=False)) is None


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown channel format"):
        ChannelSpec("answer", cast("ChannelFormat", "docx"))


def test_subscribers_are_kept_in_order_by_channel() -> None:
    def first(**_delta: object) -> None: ...

    def second(**_delta: object) -> None: ...

    subscribers = ChannelSubscribers().subscribe("a", first).subscribe("a", second)

    assert subscribers.of("a") == (first, second)
    assert subscribers.of("b") == ()
