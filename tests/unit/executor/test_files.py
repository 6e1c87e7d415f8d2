"""Files of a run inside the sandbox: inputs out of a tar stream, the contract's outputs into one."""

import io
import os
import tarfile

import pytest

from everturn.execution.messages import Hello, InputsEnd, RunLimits
from everturn.execution.records import BadMessage, build_message
from executor.files import RawReader, load_output_plan, send_outputs, unpack_inputs


class Frames:
    """A channel that has already received everything."""

    def __init__(self, *frames: object) -> None:
        self.frames = list(frames)

    def receive_frame(self) -> object:
        return self.frames.pop(0)


def reader(data: bytes, piece: int = 1000) -> RawReader:
    pieces = [data[start : start + piece] for start in range(0, len(data), piece)]
    return RawReader(Frames(*pieces, build_message(InputsEnd())))


def tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member, body in members:
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return file.getvalue()


def test_inputs_are_unpacked_below_the_root(tmp_path):
    data = tar((tarfile.TarInfo("turn_1/attachments/a.csv"), b"1,2"), (tarfile.TarInfo("ü.txt"), b"x" * 5000))

    unpack_inputs(reader(data), str(tmp_path))

    assert (tmp_path / "turn_1/attachments/a.csv").read_bytes() == b"1,2"
    assert (tmp_path / "ü.txt").read_bytes() == b"x" * 5000


def test_no_inputs_at_all_are_fine(tmp_path):
    unpack_inputs(reader(tar()), str(tmp_path))

    assert os.listdir(tmp_path) == []


def link(name: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return member


@pytest.mark.parametrize("member", [link("a"), tarfile.TarInfo("../a"), tarfile.TarInfo("/a")])
def test_links_and_paths_that_lead_elsewhere_are_refused(tmp_path, member):
    with pytest.raises(ValueError, match=r"regular|relative"):
        unpack_inputs(reader(tar((member, b""))), str(tmp_path / "root"))


def test_another_message_in_the_stream_is_refused(tmp_path):
    with pytest.raises(BadMessage):
        unpack_inputs(RawReader(Frames(b"x", build_message(Hello("n")))), str(tmp_path))


def plan_of(root, *outputs: str, limits: RunLimits | None = None):
    return load_output_plan(str(root), outputs, limits or RunLimits())


def test_only_regular_declared_files_are_sent(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.txt").write_text("b")
    (tmp_path / "extra.txt").write_text("c")
    (tmp_path / "empty").touch()
    (tmp_path / "link").symlink_to("a.txt")
    (tmp_path / "way").symlink_to("sub")
    os.mkfifo(tmp_path / "pipe")

    plan = plan_of(tmp_path, "a.txt", "sub/b.txt", "gone", "empty", "link", "way/b.txt", "pipe", "sub", "a.txt/x")

    assert plan.files == ((0, "a.txt"), (1, "sub/b.txt"))
    assert dict(plan.refused) == {
        "gone": "missing",
        "empty": "empty",
        "link": "symlink",
        "way/b.txt": "symlink",
        "pipe": "not_regular",
        "sub": "not_regular",
        "a.txt/x": "missing",
    }
    assert plan.undeclared == ("extra.txt", "way")


def test_bytes_and_numbers_of_files_are_bounded(tmp_path):
    for name in "abc":
        (tmp_path / name).write_text(name * 40)

    assert plan_of(tmp_path, *"abc", limits=RunLimits(output_bytes=100)).refused == (("c", "too_large"),)
    assert plan_of(tmp_path, *"abc", limits=RunLimits(output_files=2)).refused == (("c", "too_many_files"),)


def test_the_list_of_undeclared_names_is_bounded(tmp_path):
    for number in range(60):
        (tmp_path / f"{number:03}{'x' * 240}").touch()

    undeclared = plan_of(tmp_path).undeclared

    assert len(undeclared) == 50
    assert max(map(len, undeclared)) <= 200


def test_outputs_are_named_by_their_place_in_the_contract(tmp_path):
    (tmp_path / "b").write_text("body")
    sent = io.BytesIO()

    send_outputs(str(tmp_path), plan_of(tmp_path, "a", "b"), sent)

    sent.seek(0)
    with tarfile.open(fileobj=sent) as archive:
        [member] = archive.getmembers()
        assert (member.name, archive.extractfile(member).read()) == ("1", b"body")


def test_a_search_for_other_files_ends_at_a_depth_and_goes_on_beside_it(tmp_path):
    deep = tmp_path
    for _ in range(200):
        deep = deep / "d"
        deep.mkdir()
    (deep / "hidden").touch()
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "beside").touch()
    (tmp_path / "wanted").write_text("x")

    plan = load_output_plan(str(tmp_path), ("wanted",), RunLimits())

    assert plan.files == ((0, "wanted"),)
    assert len(plan.undeclared) == 2
    assert plan.undeclared[0] == "e/beside" or plan.undeclared[1] == "e/beside"
    assert any(name.endswith("(this folder was not searched)") for name in plan.undeclared)
