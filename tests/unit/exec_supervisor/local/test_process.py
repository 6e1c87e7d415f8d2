"""Counting the memory of a process and all below it."""

import os
import subprocess
import sys

from exec_supervisor.local.process import load_children, load_descendants, load_memory_bytes


def process(
    proc, pid: int, parent: int, resident: str = "RssAnon:\t 10 kB\nRssFile:\t 99 kB\nRssShmem:\t 5 kB\n"
) -> None:
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "stat").write_text(f"{pid} (odd ) name) S {parent} 1 1")
    (proc / str(pid) / "status").write_text(f"Name:\tx\n{resident}")


def test_only_the_processes_below_are_counted(tmp_path):
    process(tmp_path, 1, 0)
    process(tmp_path, 10, 1)
    process(tmp_path, 11, 10)
    process(tmp_path, 12, 11, "")
    process(tmp_path, 20, 1)
    (tmp_path / "sys").mkdir()

    assert load_descendants(10, tmp_path) == {10, 11, 12}
    assert load_children(1, tmp_path) == (10, 20) or load_children(1, tmp_path) == (20, 10)
    assert load_memory_bytes(10, tmp_path) == 2 * 15 * 1024


def test_an_ended_process_counts_nothing(tmp_path):
    assert load_memory_bytes(7, tmp_path) == 0


def test_a_real_child_is_found_with_its_memory():
    program = "x = bytearray(b'1' * 20_000_000); print('on', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()

        assert child.pid in load_children(os.getpid())
        assert 20_000_000 < load_memory_bytes(child.pid) < 80_000_000

        child.communicate(b"\n")
