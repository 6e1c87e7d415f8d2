"""A supervisor of bubblewrap as a process whose worker is silent, sends invalid data, or disconnects."""

import signal
import subprocess
import sys

COMMAND = [sys.executable, "-I", "-m", "exec_supervisor"]


def test_a_worker_that_hangs_up_at_once_ends_it():
    done = subprocess.run(COMMAND, input=b"", capture_output=True, check=False, timeout=20)

    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


def test_invalid_input_ends_it_with_a_reason_on_stderr():
    done = subprocess.run(COMMAND, input=b"\0\0\0\2{}", capture_output=True, check=False, timeout=20)

    assert done.returncode == 1
    assert b"BadMessage" in done.stderr


def test_a_signal_ends_it():
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdin.write(b"\0\0")
        process.stdin.flush()
        process.send_signal(signal.SIGTERM)

        assert process.wait(20) in (1, -signal.SIGTERM)
