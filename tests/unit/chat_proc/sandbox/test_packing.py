"""Tar both ways: inputs as `tarfile` reads them, outputs from a stream that nobody vouches for."""

import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.sandbox.results import UnpackedOutputs, measure_input, pack_inputs, unpack_outputs


def test_inputs_become_a_tar_stream_in_small_pieces(tmp_path):
    (tmp_path / "file").write_bytes(b"y" * 200_000)
    inputs = {"turn_1/attachments/ü.csv": b"1,2", "n" * 200: tmp_path / "file"}

    pieces = list(pack_inputs(inputs))

    assert max(map(len, pieces)) <= 64 << 10
    with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as archive:
        bodies = {member.name: archive.extractfile(member).read() for member in archive}
    assert bodies == {"turn_1/attachments/ü.csv": b"1,2", "n" * 200: b"y" * 200_000}
    assert [measure_input(content) for content in inputs.values()] == [3, 200_000]


def test_a_file_that_is_gone_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        list(pack_inputs({"a": tmp_path / "gone"}))


def tar(*members: tuple[str, bytes], **changes: object) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, body in members:
            member = tarfile.TarInfo(name)
            member.size = len(body)
            for key, value in changes.items():
                setattr(member, key, value)
            archive.addfile(member, io.BytesIO(body))
    return file.getvalue()


@given(st.lists(st.binary(max_size=2000), max_size=5))
def test_what_the_executor_packs_comes_out(bodies):
    outputs = tuple(f"file{number}" for number in range(len(bodies)))

    unpacked = unpack_outputs(tar(*((str(number), body) for number, body in enumerate(bodies))), outputs)

    assert unpacked == UnpackedOutputs(dict(zip(outputs, bodies, strict=True)))


@pytest.mark.parametrize(
    "data",
    [
        tar(("2", b"x")),
        tar(("0", b"x"), ("0", b"y")),
        tar(("../../etc/passwd", b"x")),
        tar(("-1", b"x")),
        tar(("", b"x")),
        tar(("0", b""), type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        tar(("0", b""), type=tarfile.LNKTYPE, linkname="/etc/passwd"),
        tar(("0", b""), type=tarfile.CHRTYPE),
        tar(("0", b""), type=tarfile.DIRTYPE),
        tar(("0", b"x"), type=tarfile.GNUTYPE_SPARSE),
        tar(("0", b"x"), type=tarfile.XHDTYPE),
        tar(("0", b"x" * 1000))[:700],
        tar(("0", b"x"))[:100],
        tar(("0", b"x")).replace(b"ustar", b"vstar"),
        b"\xff" * 5000,
        b"x",
    ],
)
def test_anything_else_is_a_problem_and_gives_no_file(data):
    unpacked = unpack_outputs(data, ("a", "b"))

    assert unpacked.problem
    assert set(unpacked.files) <= {"a"}


def test_what_comes_before_the_problem_is_kept():
    unpacked = unpack_outputs(tar(("1", b"good"))[:1024] + b"\xff" * 512, ("a", "b"))

    assert unpacked.files == {"b": b"good"}
    assert unpacked.problem


@given(st.binary(max_size=1200))
def test_no_bytes_do_worse_than_a_problem(noise):
    good = tar(("0", b"good"))[:1024]

    for data in (noise, good + noise, bytes(a ^ b for a, b in zip(good, noise.ljust(1024, b"\0"), strict=False))):
        unpacked = unpack_outputs(data, ("a",))
        assert set(unpacked.files) <= {"a"}


def test_no_outputs_are_no_problem():
    assert unpack_outputs(b"", ("a",)) == UnpackedOutputs({})
    assert unpack_outputs(tar(), ("a",)) == UnpackedOutputs({})
