"""One hash for the arguments of a call."""

import pytest

from everturn.execution.framing import FrameError
from everturn.execution.messages import hash_arguments


def test_the_hash_does_not_depend_on_the_order_of_names_at_any_depth():
    one = {"a": {"x": 1, "y": [{"k": 1, "l": 2}]}, "b": b"x"}
    other = {"b": b"x", "a": {"y": [{"l": 2, "k": 1}], "x": 1}}

    assert hash_arguments(one) == hash_arguments(other)


@pytest.mark.parametrize("other", [{"a": 2}, {"a": "1"}, {"b": 1}, {}, {"a": 1, "b": None}])
def test_other_arguments_have_another_hash(other):
    assert hash_arguments({"a": 1}) != hash_arguments(other)


def test_an_unsendable_value_has_no_hash():
    with pytest.raises(FrameError, match="not_sendable"):
        hash_arguments({"a": object()})
