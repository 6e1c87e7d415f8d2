"""A process on its standard streams: frames in, frames out, and its end by a signal."""

import signal
import subprocess
import sys

from everturn.execution.framing import FrameDecoder, encode_frame
from everturn.execution.messages import Stop
from everturn.execution.records import build_message

SAYS_STOP_AND_WAITS = """
import asyncio, sys
from everturn.execution.messages import Stop
from exec_supervisor.supervisor.standard_streams import run_on_standard_streams

async def serve(line):
    await line.send(Stop("cancelled"))
    if len(sys.argv) == 1:
        await asyncio.Event().wait()
    return 7

sys.exit(run_on_standard_streams(serve))
"""
SAID = encode_frame(build_message(Stop("cancelled")))


def test_output_is_flushed_at_the_end_and_the_exit_code_kept():
    done = subprocess.run(
        [sys.executable, "-I", "-c", SAYS_STOP_AND_WAITS, "once"],
        input=b"",
        capture_output=True,
        check=False,
        timeout=50,
    )

    assert (done.returncode, done.stdout, done.stderr) == (7, SAID, b"")


def test_a_signal_ends_it_early():
    command = [sys.executable, "-I", "-c", SAYS_STOP_AND_WAITS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        [said] = FrameDecoder().feed(process.stdout.read(len(SAID)))
        process.send_signal(signal.SIGTERM)

        assert said == build_message(Stop("cancelled"))
        assert process.wait(50) == 1
