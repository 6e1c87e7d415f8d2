"""The port of exports has the driver's shape."""

from everturn.lifecycle.exports import Section


def test_sections_come_in_one_order() -> None:
    assert [section.value for section in Section] == ["artifacts", "signals", "feedback"]
