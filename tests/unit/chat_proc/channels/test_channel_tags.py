import pytest

from chat_proc.channels.parser import ChannelSyntax, Tag, TagTable


def test_only_declared_names_make_tags() -> None:
    table = TagTable([ChannelSyntax("a"), ChannelSyntax("b", aliases=("Bee",))])

    text = "<channel:A></CHANNEL:bee><channel:c>"

    assert table.try_find(text) == Tag("a", opens=True, text="<channel:A>", start=0)
    assert table.try_find(text, 1) == Tag("b", opens=False, text="</CHANNEL:bee>", start=11)
    assert table.try_find(text, 12) is None


@pytest.mark.parametrize("tail", ["<", "</", "<chan", "</CHANNEL:", "</channel:a"])
def test_the_beginning_of_a_tag_is_not_settled(tail: str) -> None:
    table = TagTable([ChannelSyntax("a")])

    assert table.settled_chars(f"text {tail}") == 5


@pytest.mark.parametrize("tail", ["<b", "</channel:a>", "<channel:b", "< ", "<channel:a x"])
def test_what_cannot_become_a_tag_is_settled(tail: str) -> None:
    table = TagTable([ChannelSyntax("a")])

    assert table.settled_chars(f"text {tail}") == 5 + len(tail)


@pytest.mark.parametrize("second", [ChannelSyntax("A"), ChannelSyntax("b", aliases=("a",)), ChannelSyntax("a b")])
def test_a_name_is_wellformed_and_declared_once(second: ChannelSyntax) -> None:
    with pytest.raises(ValueError, match="malformed or declared twice"):
        TagTable([ChannelSyntax("a"), second])
