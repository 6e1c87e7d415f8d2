"""What a run may ask of the gateway: its grants, their arguments, calls and bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.execution.messages import MAX_ARGUMENT_VALUES, ArgumentRule, Capability, GatewayCall, ToolGrant
from exec_supervisor.supervisor.gateway import Quota, Refused


def call(tool_id: str = "a.b", **arguments: object) -> GatewayCall:
    return GatewayCall(1, tool_id, arguments)


def code_of(quota: Quota, asked: GatewayCall) -> str:
    try:
        quota.count_call(asked)
    except Refused as refused:
        return refused.code
    return ""


def test_only_granted_tools_are_served():
    quota = Quota(Capability((ToolGrant("a.b"),)))

    assert code_of(quota, call("a.b")) == ""
    assert code_of(quota, call("a.c")) == "not_allowed"
    assert code_of(quota, call("a")) == "not_allowed"
    assert code_of(Quota(Capability()), call("a.b")) == "not_allowed"


RULES = (
    ArgumentRule("kind", one_of=("web", "news")),
    ArgumentRule("query", max_chars=5),
    ArgumentRule("urls", max_items=2),
    ArgumentRule("names", max_items=2, max_item_chars=3),
    ArgumentRule("n", maximum=20),
    ArgumentRule("free"),
)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({}, ""),
        ({"kind": "web", "query": "12345", "urls": [1, 2], "n": 20, "free": {"any": "thing"}}, ""),
        ({"n": -1.5}, ""),
        ({"kind": "video"}, "bad_arguments"),
        ({"kind": ["web"]}, "bad_arguments"),
        ({"query": "123456"}, "bad_arguments"),
        ({"query": 5}, "bad_arguments"),
        ({"urls": [1, 2, 3]}, "bad_arguments"),
        ({"urls": "ab"}, "bad_arguments"),
        ({"names": ["abc", ""]}, ""),
        ({"names": ["abcd"]}, "bad_arguments"),
        ({"names": ["a", ["abcd"]]}, "bad_arguments"),
        ({"names": ["x" * 340_000]}, "bad_arguments"),
        ({"n": 21}, "bad_arguments"),
        ({"n": "3"}, "bad_arguments"),
        ({"other": 1}, "bad_arguments"),
    ],
)
def test_arguments_keep_their_rules(arguments, code):
    quota = Quota(Capability((ToolGrant("a.b", RULES),)))

    assert code_of(quota, call(**arguments)) == code


@pytest.mark.parametrize(
    ("free", "code"),
    [
        ([1] * (MAX_ARGUMENT_VALUES - 2), ""),
        ([1] * MAX_ARGUMENT_VALUES, "bad_arguments"),
        ({str(n): n for n in range(MAX_ARGUMENT_VALUES)}, "bad_arguments"),
        ([[[]]] * 100_000, "bad_arguments"),
        ("x" * 900_000, ""),
    ],
)
def test_arguments_consist_of_so_many_values(free, code):
    assert code_of(Quota(Capability((ToolGrant("a.b"),))), call(free=free)) == code


def test_a_grant_without_rules_takes_any_argument():
    assert code_of(Quota(Capability((ToolGrant("a.b"),))), call(anything=[1])) == ""


@given(st.lists(st.sampled_from(["a.b", "a.c", "a.d"]), max_size=20), st.integers(0, 6), st.integers(0, 3))
def test_never_more_calls_than_granted(tools, all_calls, of_one):
    quota = Quota(Capability((ToolGrant("a.b", None, of_one), ToolGrant("a.c")), max_calls=all_calls))

    served = [tool for tool in tools if not code_of(quota, call(tool))]

    assert len(served) == min(all_calls, len(served), min(tools.count("a.b"), of_one) + tools.count("a.c"))
    assert len(served) <= all_calls
    assert served.count("a.b") <= of_one
    assert "a.d" not in served


def test_refused_calls_use_no_quota():
    quota = Quota(Capability((ToolGrant("a.b", RULES),), max_calls=1))
    for _ in range(5):
        code_of(quota, call(other=1))

    assert code_of(quota, call()) == ""
    assert code_of(quota, call()) == "quota_calls"


def test_the_byte_quota_ends_permanently():
    quota = Quota(Capability(max_bytes=10))

    quota.count_bytes(10)
    for count in (1, 0):
        with pytest.raises(Refused, match="byte limit"):
            quota.count_bytes(count)


def test_calls_may_begin_until_the_deadline():
    moments = iter([100.0, 104.9, 105.0])
    quota = Quota(Capability((ToolGrant("a.b"),), deadline_s=5.0), monotonic=lambda: next(moments))

    assert code_of(quota, call()) == ""
    assert code_of(quota, call()) == "quota_time"
