"""Numbers that only a preview shows."""

import pytest

from chat_proc.workspace.unified_diff import has_preview_numbers

CURRENT = "def f():\n    return 1\n\n\ndef g():\n    return 2\n"


def test_numbered_context_of_a_diff_is_noticed() -> None:
    patch = "@@ -1,2 +1,2 @@\n 1: def f():\n-2:     return 1\n+2:     return 3\n"

    assert has_preview_numbers(patch, CURRENT, is_diff=True)


def test_a_numbered_whole_text_is_noticed() -> None:
    numbered = "\n".join(f"{number}: {line}" for number, line in enumerate(CURRENT.split("\n"), start=1))

    assert has_preview_numbers(numbered, CURRENT, is_diff=False)


@pytest.mark.parametrize("separator", [": ", "\t", " | "])
def test_every_way_to_show_numbers_is_known(separator: str) -> None:
    patch = "@@ -1,2 +1,2 @@\n" + "".join(
        f" {number}{separator}{line}\n" for number, line in enumerate(CURRENT.split("\n")[:2], start=1)
    )

    assert has_preview_numbers(patch, CURRENT, is_diff=True)


@pytest.mark.parametrize(
    ("patch", "current"),
    [
        ("1: first\n2: second\n", "0: zero\n1: one\n"),
        ("@@ -1,2 +1,2 @@\n 1: a\n-2: b\n+2: c\n", "1: a\n2: b\n"),
        ("@@ -1,2 +1,2 @@\n def f():\n-    return 1\n+    return 3\n", CURRENT),
        ("1: def f():\nreally a text about it\nwith\nmany\nother lines\n", CURRENT),
    ],
)
def test_numbers_that_belong_to_the_text_are_its_own(patch: str, current: str) -> None:
    assert not has_preview_numbers(patch, current, is_diff=patch.startswith("@@"))
