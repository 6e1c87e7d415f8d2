"""Archives whose directory contradicts their bytes are refused, and so are bombs."""

import zlib

import pytest
from uploads.zips import End, Member, bomb, build_zip

from ingress.attachments.structure.limits import Unsound
from ingress.attachments.structure.office import load_entries, unpack

A, B = Member("a/x.xml", b"<a/>" * 99), Member("b.bin", bytes(range(256)) * 3000, method=0)
DESCRIBED = Member("c.xml", b"<c/>", flags=0x808)


def test_entries_come_out_as_they_went_in() -> None:
    data = build_zip([A, B, DESCRIBED, Member("d/", b"", method=0, mode=0o40755)], End(comment=b"a comment"))

    found = {entry.name: b"".join(unpack(data, entry)) for entry in load_entries(data)}

    assert found == {"a/x.xml": A.data, "b.bin": B.data, "c.xml": b"<c/>", "d/": b""}


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (build_zip([A])[:-5], "truncated|end record of its directory"),
        (build_zip([A], tail=b"x"), "end record of its directory"),
        (build_zip([A], head=b"#!/bin/sh\n"), "there is data between"),
        (build_zip([A, B], End(count=1)), "recorded number of entries"),
        (build_zip([A], End(count=2)), "recorded number of entries"),
        (build_zip([A], End(offset=3)), "recorded offset"),
        (build_zip([Member(f"{n}") for n in range(2001)]), "2000 entries"),
        (build_zip([Member(f"{n}", method=0) for n in range(65_000)], End(count=7)), "2000 entries"),
        (build_zip([bomb(f"{n}", 1_000_000) for n in range(121)]), "unpacks to more than 120000000"),
        (build_zip([bomb("x", 50_000_000)]), "200 times"),
        (build_zip([A, Member("b", at=0, data=A.data)]), "does not match its directory"),
        (build_zip([A, Member(A.name + "2", data=A.data, local_name=A.name, at=0)]), "does not match its directory"),
        (build_zip([Member("x", b"a", local_name="y")]), "does not match its directory"),
        (build_zip([Member("hidden", b"x" * 99, listed=False), A]), "there is data between"),
        (build_zip([A, Member("hidden", b"x" * 99, listed=False)]), "there is data between"),
        (build_zip([A, A]), "two entries"),
        (build_zip([Member("a.xml"), Member("A.XML")]), "two entries"),
        (build_zip([Member("x", b"a", flags=0x801)]), "encrypted"),
        (build_zip([Member("x", b"a", method=12)]), "unsupported compression"),
        (build_zip([Member("link", b"/etc/passwd", mode=0o120777)]), "is not a file"),
        *((build_zip([Member(name)]), "points outside")
          for name in ("../x", "/x", "a/../../x", "a\\x", "C:x", "a//x", "./x", "a\nb", "", "a\u202eb")),
    ],
)  # fmt: skip
def test_an_archive_is_refused(data: bytes, fault: str) -> None:
    with pytest.raises(Unsound, match=fault):
        load_entries(data)


@pytest.mark.parametrize(
    "member",
    [
        Member("x", b"abc", crc=1),
        Member("x", b"abc" * 99, size=5),
        Member("x", b"abc", size=700),
        Member("x", b"abc", packed=b"\x07junk"),
        Member("x", b"abc", packed=b"\x01\x03\x00\xfc\xffabc" + b"behind"),
        Member("x", b"abc", packed=b"\x00\x03\x00\xfc\xffabc"),
    ],
)
def test_an_entry_that_unpacks_to_something_else_is_refused(member: Member) -> None:
    data = build_zip([member])
    (entry,) = load_entries(data)

    with pytest.raises((Unsound, zlib.error)):
        list(unpack(data, entry))
