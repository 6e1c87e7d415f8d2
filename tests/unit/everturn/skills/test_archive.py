"""Uploaded archives of skills: what is accepted, and that hostile ones are refused with the file and the reason."""

import io
import stat
import struct
import zipfile
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.core.errors import Invalid
from everturn.skills.archive import MAX_ARCHIVE_BYTES, MAX_ENTRIES, MAX_SKILL_BYTES, pack_skill, unpack_upload
from everturn.skills.reader import MAX_FILE_BYTES, MAX_SKILL_FILES, PROJECT_NAMESPACE, read_skill

SKILL = b"---\nname: refunds\ndescription: Decides on refunds.\n---\n\nAsk for the order.\n"
MIB = 1024 * 1024


def zipped(files: Mapping[str, bytes], *entries: zipfile.ZipInfo, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """An archive of a skill with more entries, which contain their own names."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        for entry in entries:
            archive.writestr(entry, entry.filename)
    return packed.getvalue()


def entry(name: str, mode: int = 0) -> zipfile.ZipInfo:
    made = zipfile.ZipInfo(name)
    made.external_attr = mode << 16
    return made


def refused(data: bytes) -> str:
    with pytest.raises(Invalid) as raised:
        read_skill("refunds", unpack_upload(data), PROJECT_NAMESPACE)
    return raised.value.detail


@pytest.mark.parametrize("folder", ["", "refunds/", "refunds-main/"])
def test_a_folder_or_what_it_contains_is_a_skill(folder: str) -> None:
    files = {f"{folder}SKILL.md": SKILL, f"{folder}scripts/größe.py": b"print(1)", f"{folder}assets/a.bin": b"\0\xff"}
    others = "__MACOSX/refunds/._SKILL.md", f"{folder}.git/config", f"{folder}scripts/__pycache__/a.pyc", ".DS_Store"

    found = unpack_upload(zipped(files, *map(entry, (*others, f"{folder}empty/"))))

    assert found == {path.removeprefix(folder): data for path, data in files.items()}
    assert [*read_skill("refunds", found, PROJECT_NAMESPACE).files] == sorted(found)


def test_the_stored_archive_is_the_same_for_the_same_files() -> None:
    files = {"SKILL.md": SKILL, "b.txt": b"b" * 9_000, "a.txt": b"a"}

    packed = pack_skill(files)

    assert packed == pack_skill(dict(reversed(files.items())))
    assert unpack_upload(packed) == files


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("../evil.py", "without empty, '.' or '..' parts"),
        ("scripts/../../evil.py", "without empty, '.' or '..' parts"),
        ("/etc/passwd", "must be relative"),
        ("scripts//a.py", "without empty"),
        ("scripts\\..\\evil.py", "must not contain backslashes"),
        ("C:\\evil.py", "must not contain backslashes"),
        ("a\nb.py", "must not contain backslashes or control characters"),
        ("a\u202epy.exe", "must not contain backslashes or control characters"),
        ("\u00e9" * 150, "at most 255 bytes"),
        ("x" * 240 + "/" * 9_000, "must have 1 to 240 characters"),
        ("a/" * 99 + "aaa.txt", "at most 200 are allowed"),
    ],
)
def test_hostile_names_are_refused_with_the_name(name: str, says: str) -> None:
    said = refused(zipped({"SKILL.md": SKILL, name: b"x"}))

    assert says in said and ascii(name[:240])[1:-1] in said


def test_a_name_is_checked_whole_and_as_it_is_encoded() -> None:
    hidden = zipped({"SKILL.md": SKILL, "evil.py#.txt": b"x"}).replace(b"evil.py#", b"evil.py\0")
    assert refused(hidden) == "'evil.py\\x00.txt': a path must not contain backslashes or control characters."
    old = zipped({"SKILL.md": SKILL, "gr#e.txt": b"x"}).replace(b"gr#e", b"gr\x94e")
    assert "the name is not marked as UTF-8" in refused(old)


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        (stat.S_IFLNK | 0o777, "is a symbolic link. Put the file itself"),
        (stat.S_IFIFO | 0o666, "is not a file"),
        (stat.S_IFCHR | 0o666, "is not a file"),
    ],
)
def test_links_and_devices_are_refused(mode: int, says: str) -> None:
    assert refused(zipped({"SKILL.md": SKILL}, entry("scripts/passwd", mode))) == (
        f"'scripts/passwd' {says}{' into the archive.' if stat.S_ISLNK(mode) else '.'}"
    )


def test_a_name_given_twice_or_inside_a_file_is_refused() -> None:
    with pytest.warns(UserWarning, match="Duplicate"):
        twice = zipped({"SKILL.md": SKILL}, entry("a.py"), entry("a.py"))
    assert refused(twice) == "'a.py' is in the archive twice."
    assert refused(zipped({"SKILL.md": SKILL, "a": b"", "a/b/c": b""})) == "'a/b/c' lies in a file of the archive."


def test_sizes_and_numbers_are_limited() -> None:
    big = zipped({"SKILL.md": SKILL, "assets/big.bin": bytes(10 * MIB)})
    assert len(big) < 20_000
    assert refused(big) == (
        f"'assets/big.bin' has {10 * MIB} bytes; a file of a skill can have at most {MAX_FILE_BYTES}."
    )
    bomb = {"SKILL.md": SKILL, **{f"{number}.bin": bytes(4 * MIB) for number in range(100)}}
    assert refused(zipped(bomb)) == f"The files have more than {MAX_SKILL_BYTES} bytes together, with '1.bin'."
    many = {"SKILL.md": SKILL, **{f"{number}": b"" for number in range(MAX_SKILL_FILES)}}
    assert "at most 200" in refused(zipped(many))
    hidden = [entry(f".git/{number}") for number in range(MAX_ENTRIES)]
    assert refused(zipped({"SKILL.md": SKILL}, *hidden)) == (
        f"The archive has {MAX_ENTRIES + 1} files and folders; at most {MAX_ENTRIES} are allowed."
    )
    assert f"at most {MAX_ARCHIVE_BYTES} are allowed" in refused(b"PK" + bytes(MAX_ARCHIVE_BYTES))


def test_a_declared_size_that_is_too_small_is_no_way_around_the_limits() -> None:
    data = zipped({"SKILL.md": SKILL, "big.bin": bytes(6 * MIB)})

    said = refused(data.replace(struct.pack("<L", 6 * MIB), struct.pack("<L", 1_000)))

    assert said.startswith("The archive is damaged: Bad CRC-32 for file 'big.bin'")


def test_a_list_of_entries_that_exhausts_memory_is_not_read() -> None:
    record = struct.pack("<4s4B4HL2L5H2L", b"PK\x01\x02", 20, 3, 20, 0, 0, 0, 0, 0, 0, 0, 0, 1, *(0,) * 6) + b"a"
    count = 2 * MIB // len(record)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count & 0xFFFF, count & 0xFFFF, count * len(record), 0, 0)
    assert "list of files has more than" in refused(record * count + end)

    locator = b"PK\x06\x07" + bytes(16)
    small = zipped({"SKILL.md": SKILL})
    assert "ZIP64" in refused(small.replace(b"PK\x05\x06", locator + b"PK\x05\x06"))


def test_other_formats_are_refused() -> None:
    for data in (b"", b"PK", b"\x1f\x8b" + bytes(100), b"name: refunds", b"PK\x05\x06"):
        assert refused(data) == "The upload is not a ZIP archive."
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        assert "method other than deflate" in refused(zipped({"SKILL.md": SKILL}, method=method))
    locked = bytearray(zipped({"SKILL.md": SKILL}))
    locked[locked.rfind(b"PK\x01\x02") + 8] |= 1
    assert refused(bytes(locked)) == "'SKILL.md' is encrypted."
    for files in ({}, {"README.md": SKILL}, {"a/SKILL.md": SKILL, "b/x.py": b""}, {"a/b/SKILL.md": SKILL}):
        assert "There is no SKILL.md" in refused(zipped(files))


@given(st.dictionaries(st.text(max_size=30), st.binary(max_size=50), max_size=4), st.booleans())
def test_any_names_are_accepted_as_they_are_or_refused(files: dict[str, bytes], wrapped: bool) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("refunds/SKILL.md" if wrapped else "SKILL.md", SKILL)
        for name, data in files.items():
            try:
                archive.writestr(zipfile.ZipInfo(name), data)
            except ValueError:
                return
    try:
        skill = read_skill("refunds", unpack_upload(packed.getvalue()), PROJECT_NAMESPACE)
    except Invalid:
        return
    root = "skills/project.refunds/"
    assert all(file.path == f"{root}{path}" and ".." not in path.split("/") for path, file in skill.files.items())
    assert all(path == "SKILL.md" or data.data in files.values() for path, data in skill.files.items())


_VALID = zipped({"SKILL.md": SKILL, "scripts/a.py": b"print(1)" * 50})


@given(st.lists(st.tuples(st.integers(0, len(_VALID) - 1), st.integers(0, 255)), min_size=1, max_size=8))
def test_a_damaged_archive_is_refused_or_read_within_limits(changes: list[tuple[int, int]]) -> None:
    damaged = bytearray(_VALID)
    for place, byte in changes:
        damaged[place] = byte
    try:
        files = unpack_upload(bytes(damaged))
    except Invalid:
        return
    assert sum(map(len, files.values())) <= MAX_SKILL_BYTES
