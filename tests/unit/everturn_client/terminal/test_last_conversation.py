"""Remembering conversations."""

from pathlib import Path

import pytest

from everturn_client.terminal.last_conversation import MAX_REMEMBERED, LastConversations


def test_each_place_has_its_own_last_conversation(tmp_path: Path) -> None:
    here, there = LastConversations(tmp_path / "state", "here"), LastConversations(tmp_path / "state", "there")

    here.save("conv_1")
    there.save("conv_2")
    here.save("conv_3")

    assert (here.try_load(), there.try_load()) == ("conv_3", "conv_2")


def test_old_places_are_forgotten(tmp_path: Path) -> None:
    for number in range(MAX_REMEMBERED + 1):
        LastConversations(tmp_path, f"place {number}").save("conv_1")

    assert LastConversations(tmp_path, "place 0").try_load() is None
    assert LastConversations(tmp_path, "place 1").try_load() == "conv_1"


@pytest.mark.parametrize("content", ["", "[]", "{", '{"here": 3}'])
def test_a_broken_file_counts_as_absent(tmp_path: Path, content: str) -> None:
    memory = LastConversations(tmp_path, "here")
    memory.path.write_text(content)

    assert memory.try_load() is None
    memory.save("conv_1")
    assert memory.try_load() == "conv_1"
