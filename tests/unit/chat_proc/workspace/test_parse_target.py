"""What a ref asks for."""

import pytest

from chat_proc.workspace.local import all_files_of, parse_target, root_target, whole_tree
from everturn.core.errors import Invalid
from everturn.core.ids import ConversationId

HERE = ConversationId("conv_1")


@pytest.mark.parametrize(
    ("text", "exact", "folder"),
    [
        ("fi:turn_1.files/src/a.py", "fi:turn_1.files/src/a.py", "fi:turn_1.files/src/a.py/"),
        ("fi:turn_1.files/src/", None, "fi:turn_1.files/src/"),
        ("fi:turn_1.files/", None, "fi:turn_1.files/"),
        ("fi:turn_1.files", None, "fi:turn_1.files/"),
        ("fi:turn_1.outputs/a.csv", "fi:turn_1.outputs/a.csv", None),
        ("fi:turn_1.user.attachments/a b.csv", "fi:turn_1.user.attachments/a b.csv", None),
        ("fi:conv_1.turn_1.files/a", "fi:turn_1.files/a", "fi:turn_1.files/a/"),
    ],
)
def test_a_ref_names_a_file_or_a_folder_of_files(text: str, exact: str | None, folder: str | None) -> None:
    wish = parse_target(text, HERE)

    assert (wish.exact, wish.folder, wish.conversation_id) == (exact, folder, None)


def test_a_ref_of_another_conversation_keeps_its_owner_in_refs_and_paths() -> None:
    wish = parse_target("fi:conv_2.turn_1.files/src/", HERE)

    assert (wish.conversation_id, wish.folder) == ("conv_2", "fi:turn_1.files/src/")
    assert wish.spell("fi:turn_1.files/src/a.py") == "fi:conv_2.turn_1.files/src/a.py"
    assert wish.spell_folder() == "fi:conv_2.turn_1.files/src/"
    assert wish.folder_path == "conv_2/turn_1/files/src/"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("turn_1/files/a.py", "did you mean fi:turn_1.files/a.py?"),
        ("turn_1/attachments/a.csv", "did you mean fi:turn_1.user.attachments/a.csv?"),
        ("ar:turn_1.user.prompt", "only fi: refs"),
        ("fi:turn_1.outputs/", "one by one"),
        ("fi:turn_1.user.attachments/", "one by one"),
        ("fi:turn_1.files/../a", "relative"),
        ("fi:nowhere", "is not a ref"),
    ],
)
def test_what_can_not_be_taken_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_target(text, HERE)

    assert reason in refused.value.detail


def test_a_pulled_root_is_wished_again_as_what_it_was() -> None:
    assert root_target("fi:turn_1.files/a", HERE, is_folder=False).folder is None
    assert root_target("fi:turn_1.files/a/", HERE, is_folder=True).exact is None


def test_trees_of_a_turn() -> None:
    assert whole_tree("turn_1") == "fi:turn_1.files/"
    assert all_files_of("turn_1") == "fi:turn_1."
    with pytest.raises(Invalid):
        whole_tree("latest")
