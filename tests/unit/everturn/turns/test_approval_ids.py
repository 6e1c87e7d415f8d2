"""What an approval is called, and what it is bound to."""

import pytest

from everturn.core.ids import is_id
from everturn.turns.model import approval_id_of, hash_arguments
from everturn_testing.core import SequentialIds


def test_the_approval_id_of_a_call_is_stable() -> None:
    ids = SequentialIds()
    one, other = ids.call(), ids.call()

    assert approval_id_of(one) == approval_id_of(one)
    assert approval_id_of(one) != approval_id_of(other)
    assert is_id(approval_id_of(one), "appr")


def test_the_order_of_parameters_is_not_part_of_what_is_approved() -> None:
    assert hash_arguments("mail.send", {"to": "ann", "text": "é"}) == hash_arguments(
        "mail.send", {"text": "é", "to": "ann"}
    )


@pytest.mark.parametrize(("tool", "params"), [("mail.sent", {"to": "ann"}), ("mail.send", {"to": "bob"})])
def test_another_tool_or_another_value_is_another_question(tool: str, params: dict[str, str]) -> None:
    assert hash_arguments(tool, params) != hash_arguments("mail.send", {"to": "ann"})
