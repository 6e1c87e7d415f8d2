"""Who sees a written file."""

import pytest

from chat_proc.tools.stored_files import Destination, check_room
from chat_proc.tools.workspace.write import choose_visibility
from chat_proc.workspace.local import Workspace
from everturn.core.ids import TurnId
from everturn.files.model import ArtifactKind


@pytest.mark.parametrize(
    ("channel", "kind", "visibility"),
    [
        ("canvas", "display", "internal"),
        ("canvas", "file", "external"),
        ("timeline_text", "file", "external"),
        ("internal", "file", "internal"),
    ],
)
def test_a_file_is_offered_unless_it_is_internal(channel, kind, visibility) -> None:
    assert choose_visibility(channel, kind) == visibility


def test_an_empty_workspace_has_room() -> None:
    check_room(Workspace(TurnId("turn_1")), Destination(ArtifactKind.FILE, "a"), 1)
