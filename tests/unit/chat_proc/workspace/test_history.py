"""History from artifact rows: whole folders over several pages, and only the owner's."""

from chat_proc.workspace.loading import WorkspaceHistory
from everturn.core.identity import Principal
from everturn.files.ports import MAX_PAGE
from everturn_testing.files.stored_files import OWNER, StoredFiles


async def test_a_folder_longer_than_a_page_comes_whole_up_to_its_limit() -> None:
    stored = StoredFiles()
    for number in range(MAX_PAGE + 5):
        stored.put("turn_1", f"f{number:05d}", b"x")
    history = WorkspaceHistory(stored.artifacts)

    whole = await history.load_folder(OWNER, "conv_1", "fi:turn_1.files/", max_files=MAX_PAGE * 2)
    part = await history.load_folder(OWNER, "conv_1", "fi:turn_1.files/", max_files=MAX_PAGE + 2)

    assert len(whole) == MAX_PAGE + 5
    assert part == whole[: MAX_PAGE + 2]


async def test_more_refs_than_a_page_are_found_by_ref() -> None:
    stored = StoredFiles()
    artifact = stored.put("turn_1", "a", b"x")
    refs = [f"fi:turn_1.files/{number}" for number in range(MAX_PAGE)] + [artifact.ref]

    assert await WorkspaceHistory(stored.artifacts).load_files(OWNER, "conv_1", refs) == {artifact.ref: artifact}


async def test_identity_never_crosses_users() -> None:
    stored = StoredFiles()
    artifact = stored.put("turn_1", "a", b"x")
    history, stranger = WorkspaceHistory(stored.artifacts), Principal("acme", "main", "bob")

    assert await history.load_files(stranger, "conv_1", [artifact.ref]) == {}
    assert await history.load_folder(stranger, "conv_1", "fi:turn_1.files/", max_files=9) == ()
    assert await history.load_turns(stranger, "conv_1", limit=5) == ()
