"""Which files of a built client are served, and which folders are no client."""

from pathlib import Path

import pytest

from ingress.web import BadBundle, load_bundle


def build(folder: Path, **files: bytes) -> Path:
    for name, content in {"index.html": b"<!doctype html>", **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def test_page_and_assets_are_known_with_their_types_and_codings(tmp_path: Path) -> None:
    build(
        tmp_path,
        **{"assets/a-1.js": b"1", "assets/a-1.js.br": b"2", "assets/a-1.js.gz": b"3", "assets/f/x.woff2": b"4"},
    )

    loaded = load_bundle(tmp_path)

    assert (loaded.page.content_type, loaded.page.coded) == ("text/html; charset=utf-8", {})
    assert set(loaded.assets) == {"a-1.js", "f/x.woff2"}
    script = loaded.assets["a-1.js"]
    assert (script.content_type, script.content) == ("text/javascript; charset=utf-8", b"1")
    assert script.coded == {"br": b"2", "gzip": b"3"}


def test_what_lies_elsewhere_or_is_a_link_is_not_served(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    folder = build(tmp_path / "dist", **{"notes.txt": b"n", ".stamp": b"s", "assets/a.js": b"1"})
    (folder / "assets" / "link.js").symlink_to(tmp_path / "secret")

    assert set(load_bundle(folder).assets) == {"a.js"}


def test_a_folder_without_a_page_is_no_client(tmp_path: Path) -> None:
    with pytest.raises(BadBundle, match=r"index\.html"):
        load_bundle(tmp_path)
    with pytest.raises(BadBundle):
        load_bundle(tmp_path / "absent")


@pytest.mark.parametrize("limit", [{"max_bytes": 10}, {"max_files": 1}])
def test_a_folder_that_is_too_large_is_no_client(tmp_path: Path, limit: dict[str, int]) -> None:
    build(tmp_path, **{"assets/a.js": b"12345"})

    with pytest.raises(BadBundle, match="more than"):
        load_bundle(tmp_path, **limit)
