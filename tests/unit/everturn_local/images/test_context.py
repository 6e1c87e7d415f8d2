"""What is sent to an engine."""

import io
import tarfile
from pathlib import Path

from everturn_local.images.context import build_digest, load_folder, save_context


def test_the_tar_has_contents_and_modes_and_nothing_of_this_machine(tmp_path: Path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "tool").write_bytes(b"run")
    (tmp_path / "sub" / "tool").chmod(0o700)
    target = io.BytesIO()

    save_context(load_folder(tmp_path, "files"), target)

    target.seek(0)
    with tarfile.open(fileobj=target) as archive:
        (entry,) = archive.getmembers()
        taken = archive.extractfile(entry)
        assert taken is not None and taken.read() == b"run"
    assert (entry.name, entry.mode, entry.uid, entry.uname, entry.mtime) == ("files/sub/tool", 0o755, 0, "", 0)


def test_the_digest_changes_with_a_name_a_content_or_a_fact(tmp_path: Path):
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("1")
    other.write_text("2")
    digest = build_digest({"a": one}, {"base": "x"})

    assert build_digest({"a": one}, {"base": "x"}) == digest
    for context, facts in (({"b": one}, {"base": "x"}), ({"a": other}, {"base": "x"}), ({"a": one}, {"base": "y"})):
        assert build_digest(context, facts) != digest
