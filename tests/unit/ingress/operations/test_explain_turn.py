"""An operator asks for a turn that does not exist."""

import pytest

from everturn.core.errors import NotFound
from everturn.turns.explaining import TurnState
from ingress.operations.commands import OfflineCommand, parse_arguments
from ingress.operations.explaining import build_explain_command


def test_an_unknown_id_is_reported_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    async def load(turn_or_conversation: str) -> TurnState:
        raise NotFound(turn_or_conversation)

    commands = {"explain-turn": build_explain_command(load)}
    command, read = parse_arguments(commands, ["explain-turn", "turn_x"], default="explain-turn")

    assert isinstance(command, OfflineCommand)
    assert command.run(read) == 1
    assert capsys.readouterr().err == "ingress: There is no turn or conversation 'turn_x'.\n"
