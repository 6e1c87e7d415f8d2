"""A caller can be stored and read back."""

import json

import pytest

from everturn.core.identity import Principal, Role
from ingress.auth.callers import Caller, Proof, build_record, read_record


@pytest.mark.parametrize(
    "caller",
    [
        Caller(Principal("t", "p", "ann")),
        Caller(Principal("t", "p", "ann", frozenset({Role.PAID, Role.REGISTERED})), 12.5, Proof("token", 3.0)),
        Caller(Principal("t", "p", "guest~1", frozenset({Role.ANONYMOUS})), 1.0, Proof("guest", 0.5)),
        Caller(Principal("t", "p", "ann"), None, Proof("key", 1.0, "0123456789abcdef")),
    ],
)
def test_a_record_gives_the_same_caller(caller: Caller) -> None:
    assert read_record(json.loads(json.dumps(build_record(caller)))) == caller
