"""Malformed ids in paths are a 404."""

import pytest

from ingress.errors import ProblemError
from ingress.fields import load_artifact_id, load_conversation_id, load_signal_id, load_turn_id, parse_conversation_id

UUID = "01890a5d-ac96-774b-bcce-b302099a8057"


async def test_well_formed_ids_pass() -> None:
    assert await load_conversation_id(f"conv_{UUID}") == f"conv_{UUID}"
    assert await load_turn_id(f"turn_{UUID}") == f"turn_{UUID}"
    assert await load_signal_id(f"sig_{UUID}") == f"sig_{UUID}"
    assert await load_artifact_id(f"art_{UUID}") == f"art_{UUID}"


@pytest.mark.parametrize(
    "text",
    ["", "new", UUID, f"turn_{UUID}", f"conv_{UUID.upper()}", f"conv_{UUID}\n", f"conv_{UUID}x", "conv_*", "conv_%",
     "conv_' OR 1=1 --", "conv_{a}:b", "conv_" + "0" * 10_000, "conv_" + UUID.replace("0", "\u0660"), "conv_\x00"],
)  # fmt: skip
def test_anything_else_is_a_404(text: str) -> None:
    with pytest.raises(ProblemError) as refused:
        parse_conversation_id(text)

    assert refused.value.status_code == 404
