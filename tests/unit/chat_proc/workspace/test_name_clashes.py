"""One name, one kind."""

import pytest

from chat_proc.workspace.local import find_clash


@pytest.mark.parametrize(
    ("paths", "clash"),
    [
        ({"a", "b/c"}, None),
        ({"a", "a.b", "a/b"}, "a"),
        ({"x/a", "x/a/b/c"}, "x/a"),
        (set(), None),
    ],
)
def test_a_file_that_would_also_be_a_folder_is_found(paths: set[str], clash: str | None) -> None:
    assert find_clash(paths) == clash
