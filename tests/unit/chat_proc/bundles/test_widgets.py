"""Which widgets a bundle has, and what is refused."""

from pathlib import Path

import pytest

from chat_proc.bundles.bundle import Bundle, read_folder, unpack
from chat_proc.bundles.manifest import BadBundle, Manifest
from chat_proc.bundles.widgets import MAX_FILE_BYTES, MAX_WIDGETS, list_widgets
from everturn.bundles.registry import WidgetListing

PAGE = b"<!doctype html><title> Open\n &lt;tickets&gt; </title><p>"


def test_the_widgets_of_a_folder_are_listed_and_stored_with_their_files(tmp_path: Path) -> None:
    board = tmp_path / "widgets" / "board"
    (board / "parts").mkdir(parents=True)
    (tmp_path / "bundle.toml").write_text('id = "desk"\n')
    (board / "index.html").write_bytes(PAGE)
    (board / "parts" / "board.js").write_text("1")
    bundle = read_folder(tmp_path)

    stored = bundle.pack()

    assert bundle.list().widgets == (WidgetListing("board", "Open <tickets>"),)
    assert stored.widgets == {"board/index.html": PAGE, "board/parts/board.js": b"1"}
    assert unpack(stored) == bundle


@pytest.mark.parametrize("page", [b"<p>", b"<title>\x1b</title>", b" " * 5000 + b"<title>late</title>", b"\xff\xfe"])
def test_a_page_without_a_usable_title_is_named_by_its_folder(page: bytes) -> None:
    assert list_widgets({"widgets/a-1/index.html": page}) == (WidgetListing("a-1", "a-1"),)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"widgets/index.html": PAGE},
            "widgets/index.html: A file must be in the folder of a widget, widgets/<name>/.",
        ),
        ({"widgets/a/a.html": PAGE}, "widgets/a: A widget needs the page index.html."),
        ({"widgets/a/b/index.html": PAGE}, "widgets/a: A widget needs the page index.html."),
        ({"widgets/A b/index.html": PAGE}, "widgets/A b: The name of a widget has 1 to 40 lower-case letters"),
        (
            {"widgets/a/index.html": b"x" * (MAX_FILE_BYTES + 1)},
            "widgets/a/index.html: A file of a widget may have at most 4 MiB",
        ),
        ({f"widgets/w{i}/index.html": PAGE for i in range(MAX_WIDGETS + 1)}, "A bundle can have 16 widgets"),
    ],
)
def test_widgets_that_cannot_be_served_are_refused_with_their_place(files: dict[str, bytes], message: str) -> None:
    with pytest.raises(BadBundle) as refused:
        Bundle(Manifest(id="desk"), files)

    assert message in refused.value.detail
