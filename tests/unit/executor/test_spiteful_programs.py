"""Programs that leave things in a bad state: what they did is still reported, and their valid files are still sent."""

import asyncio
import io
import os
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.execution.framing import FrameDecoder, FrameStream, encode_frame
from everturn.execution.messages import GatewayCall, RunLimits, ToolReply, Welcome
from everturn.execution.records import build_message, parse_message
from executor.files import load_output_plan, send_outputs
from executor.report import build_program_error
from executor.rpc import Gateway
from executor.runner import build_report
from executor.watch import ProgramEnd, Watch


@pytest.fixture
def out() -> Iterator[Path]:
    """An output folder of an ordinary user, whom we are for the test: to root every mode is open."""
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        folder = Path(place) / "out"
        folder.mkdir()
        if os.geteuid() != 0:
            yield folder
        else:
            Path(place).chmod(0o755)
            os.chown(folder, 65534, 65534)
            os.seteuid(65534)
            try:
                yield folder
            finally:
                os.seteuid(0)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o700)


def sent_by(folder: Path, *outputs: str) -> tuple[dict[str, bytes], set[str]]:
    """What leaves, by place in the contract, and the paths that are refused."""
    plan = load_output_plan(str(folder), outputs, RunLimits())
    stream = io.BytesIO()
    send_outputs(str(folder), plan, stream)
    stream.seek(0)
    with tarfile.open(fileobj=stream) as archive:
        bodies = {member.name: archive.extractfile(member).read() for member in archive}
    return bodies, {path for path, _ in plan.refused}


def test_an_unreadable_file_does_not_block_others(out):
    for name in ("closed", "open"):
        (out / name).write_text(name)
    (out / "closed").chmod(0)

    assert sent_by(out, "closed", "open") == ({"1": b"open"}, {"closed"})


def test_an_unreadable_folder_does_not_block_others(out):
    (out / "sub").mkdir()
    (out / "sub" / "a").write_text("a")
    (out / "b").write_text("b")
    (out / "sub").chmod(0)

    assert sent_by(out, "sub/a", "b") == ({"1": b"b"}, {"sub/a"})


def test_an_inaccessible_output_folder_is_no_crash(out):
    (out / "a").write_text("a")
    out.chmod(0)

    assert sent_by(out, "a") == ({}, {"a"})


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_unprintable_exception_is_reported_by_its_name():
    error = build_program_error(Unspeakable())

    assert error.type == "Unspeakable"
    assert "Unspeakable" in error.traceback


def survives(error: BaseException) -> bool:
    """Whether a failure is understood after its way through the pipe that the runner watches."""
    watch = Watch(RunLimits())
    watch.failure.add(encode_frame(build_message(build_program_error(error))))
    end = ProgramEnd(1 << 8, watch.stdout, watch.stderr, watch.failure)
    return build_report(end, RunLimits(), undeclared=(), refused=()).error is not None


@pytest.mark.parametrize("letter", ["x", "\0", "ü", "\ud800", "\U0001f600"])
def test_the_longest_message_survives_in_every_alphabet(letter):
    assert survives(ValueError(letter * 100_000))


def test_a_long_name_of_an_exception_survives():
    assert survives(type("E" * 200_000, (Exception,), {})("m"))


@given(st.text(st.characters(), max_size=50))
def test_every_message_survives(text):
    assert survives(ValueError(text))


async def answer_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    stream = FrameStream(reader, writer, FrameDecoder())
    await stream.receive()
    await stream.send(build_message(Welcome()))
    while frame := await stream.receive():
        await stream.send(build_message(ToolReply(parse_message(frame, GatewayCall).id, True, "answer")))
    writer.close()


async def call_side_by_side(gateway: Gateway, path: str) -> list[object]:
    """Answers to calls in a separate event loop; the server runs until the program leaves it."""
    server = await asyncio.start_unix_server(answer_all, path)
    answers = await asyncio.gather(*(gateway.call("a.b", {}) for _ in range(4)))
    server.close()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    return answers


def test_concurrent_calls_work_in_every_event_loop(tmp_path):
    path = tmp_path / "s"
    gateway = Gateway(str(path), "nonce")

    for _ in range(3):
        path.unlink(missing_ok=True)
        assert asyncio.run(call_side_by_side(gateway, str(path))) == ["answer"] * 4
