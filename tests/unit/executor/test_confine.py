"""The executor's own check of its confinement; the limits themselves are tested in the real sandbox."""

import os

import pytest

from executor.confine import build_socket_filter, check_confinement, find_failures, find_shared_users, is_counted

CLOSED = """Name:	python
Uid:	1001	1001	1001	1001
Gid:	1001	1001	1001	1001
CapInh:	0000000000000000
CapPrm:	0000000000000000
CapEff:	0000000000000000
CapBnd:	0000000000000000
CapAmb:	0000000000000000
NoNewPrivs:	1
Seccomp:	2
"""
LOOPBACK = "Inter-| Receive\n face |bytes\n    lo: 0 0\n"


def judge(status: str = CLOSED, devices: str = LOOPBACK, read_only: bool = True, pid: int = 1):
    return check_confinement(status=status, devices=devices, root_is_read_only=read_only, pid=pid)


def test_a_closed_sandbox_has_no_failures():
    assert judge() == ()


@pytest.mark.parametrize(
    ("there", "instead", "failure"),
    [
        ("Uid:	1001	1001	1001	1001", "Uid:	1001	0	1001	1001", "it runs as root"),
        ("Gid:	1001	1001	1001	1001", "Gid:	1001	1001	0	1001", "it runs as root"),
        ("CapEff:	0000000000000000", "CapEff:	0000000000200000", "it has capabilities"),
        ("CapBnd:	0000000000000000", "CapBnd:	000001ffffffffff", "it has capabilities"),
        ("NoNewPrivs:	1", "NoNewPrivs:	0", "it can gain privileges"),
        ("Seccomp:	2", "Seccomp:	0", "no seccomp filter is loaded"),
        ("Seccomp:	2\n", "", "no seccomp filter is loaded"),
    ],
)
def test_a_missing_wall_is_named(there, instead, failure):
    assert judge(CLOSED.replace(there, instead)) == (failure,)


def test_a_network_device_or_a_writable_root_is_named():
    assert judge(devices=LOOPBACK + "  eth0: 0 0\n") == ("it has a network device",)
    assert judge(read_only=False) == ("its root is writable",)


def test_a_runner_that_signals_from_inside_could_reach_is_named():
    assert judge(pid=2) == ("it is not the first process of its sandbox",)


@pytest.mark.parametrize(("texts", "counted"), [((), False), (("64\n",), True), (("max\n",), False)])
def test_a_control_group_counts_processes_where_it_has_a_number(tmp_path, texts, counted):
    files = [tmp_path / "absent", *(tmp_path / f"pids.max{number}" for number, _ in enumerate(texts))]
    for file, text in zip(files[1:], texts, strict=True):
        file.write_text(text)

    assert is_counted([str(file) for file in files]) is counted


def test_this_test_process_is_not_confined():
    assert "no seccomp filter is loaded" in find_failures()


def test_users_that_separate_nothing_are_named():
    failures = find_shared_users()

    assert {"its program could signal it", "it or its program could signal another process"} <= {*failures}
    assert f"it can read environ of process {os.getppid()}" in failures


def test_no_filter_is_built_for_a_machine_whose_calls_are_not_known():
    assert {len(build_socket_filter(machine)) % 8 for machine in ("x86_64", "aarch64")} == {0}
    with pytest.raises(OSError, match="riscv64"):
        build_socket_filter("riscv64")
