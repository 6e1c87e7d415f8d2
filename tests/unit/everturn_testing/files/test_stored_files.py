"""Files that tests store are found by the drivers."""

from everturn_testing.files.stored_files import OWNER, StoredFiles


async def test_a_stored_file_is_a_row_and_an_object() -> None:
    stored = StoredFiles()

    artifact = stored.put("turn_1", "a.py", b"x", conversation_id="conv_2")

    assert await stored.artifacts.load_by_ref(OWNER, "conv_2", "fi:turn_1.files/a.py") == artifact
    assert await stored.objects.load(artifact.object_key, max_bytes=1) == b"x"
