"""The report of a server as findings, each problem with a remedy."""

import pytest

from everturn_client.readiness import REMEDIES, ServerState, find_facts

WORKER = {"id": "w1", "sandbox": "bubblewrap", "battery": {"held": 40, "total": 40, "at": 1.0}, "slots": 4}


def read(parts: dict[str, object], workers: list[object] | None) -> list[tuple[str, str, bool]]:
    state = ServerState.model_validate({"status": "x", "parts": parts, "workers": workers, "later": "more"})
    return [(found.name, found.fact, bool(found.remedy)) for found in find_facts(state)]


def test_a_complete_server_has_no_problem() -> None:
    found = read({"postgres": {"ok": True, "detail": ""}, "objects": {"ok": True, "detail": "s3"}}, [WORKER, WORKER])

    assert found == [
        ("postgres", "answers", False),
        ("objects", "s3", False),
        ("workers", "2 with 8 slots: up to 16 turns run at once", False),
        ("worker w1", "runs programs in bubblewrap", False),
        ("worker w1", "runs programs in bubblewrap", False),
    ]


@pytest.mark.parametrize("name", [*REMEDIES, "a part of a later version"])
def test_an_unavailable_part_is_a_problem_with_a_remedy(name: str) -> None:
    found = read({name: {"ok": False, "detail": "no answer within 3 s"}}, [WORKER])

    assert found[0] == (name, "no answer within 3 s", True)


def test_no_worker_is_a_problem_and_so_is_not_knowing() -> None:
    none, unknown = read({}, []), read({}, None)

    assert none == [("workers", "none is running: messages are accepted but wait in the queue", True)]
    assert unknown[0][2]


def test_a_leaking_sandbox_is_a_problem_and_no_sandbox_is_not() -> None:
    leaky = {**WORKER, "battery": {"held": 39, "total": 40, "at": 1.0}}
    untried = {**WORKER, "battery": "not run"}

    found = read({}, [leaky, untried, {**WORKER, "sandbox": "", "battery": "not run"}])[1:]

    assert [bad for _, _, bad in found] == [True, False, False]
    assert "39 of 40" in found[0][1]
