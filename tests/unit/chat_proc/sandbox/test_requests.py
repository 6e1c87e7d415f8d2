"""What a run request must be."""

import dataclasses

import pytest

from chat_proc.sandbox.launching import find_excess, find_problem, hash_inputs
from chat_proc.sandbox.port import ContractItem, RunRequest
from everturn.execution.messages import RunLimits

LIMITS = RunLimits(work_dir_bytes=10)
GOOD = RunRequest("run-1", "turn_1", "print()", (ContractItem("a/b.txt"),), {"turn_1/attachments/x": b"12"})


def change(**changes) -> RunRequest:
    return dataclasses.replace(GOOD, **changes)


def test_a_good_request_has_no_problem():
    assert find_problem(GOOD) is None
    assert find_excess(GOOD, RunLimits()) is None


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (change(execution_id=""), "bad_request"),
        (change(execution_id="../x"), "bad_request"),
        (change(execution_id="x" * 101), "bad_request"),
        (change(execution_id="ü"), "bad_request"),
        (change(execution_id="a\n"), "bad_request"),
        (change(program="ü" * (1 << 20)), "bad_request"),
        (change(timeout_s=0), "bad_request"),
        (change(timeout_s=float("nan")), "bad_request"),
        (change(timeout_s=float("inf")), "bad_request"),
        (change(contract=(ContractItem("a"), ContractItem("a/b"))), "bad_request"),
        (change(inputs={"a/b/c": b"", "a": b""}), "bad_request"),
        (change(contract=(ContractItem("/etc/passwd"),)), "bad_request"),
        (change(contract=(ContractItem("../a"),)), "bad_request"),
        (change(contract=(ContractItem("a"), ContractItem("a"))), "bad_request"),
        (change(inputs={"../a": b""}), "bad_request"),
    ],
)
def test_a_bad_request_has_a_code_whatever_its_profile_allows(request_, code):
    assert find_problem(request_).code == code


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (change(contract=tuple(ContractItem(f"f{n}") for n in range(65))), "bad_request"),
        (change(inputs={"a": b"x" * 11}), "inputs_too_large"),
    ],
)
def test_more_than_the_profile_allows_has_a_code(request_, code):
    assert find_excess(request_, LIMITS).code == code


def test_inputs_are_hashed_wherever_they_are(tmp_path):
    (tmp_path / "f").write_bytes(b"12")

    hashes = hash_inputs({"a": b"12", "b": tmp_path / "f"})

    assert [(item.path, item.size) for item in hashes] == [("a", 2), ("b", 2)]
    assert hashes[0].sha256 == hashes[1].sha256
