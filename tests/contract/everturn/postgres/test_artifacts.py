"""Finding the rows of stored files."""

from dataclasses import replace

import pytest

from everturn.errors import NotFound
from everturn.model.artifacts import Artifact, ArtifactKind
from everturn.postgres.artifacts import PostgresArtifacts
from everturn.testing.contracts.stage import ANN, Stage, commit, think
from everturn.testing.database_roles import Roles


@pytest.fixture
def artifacts(roles: Roles) -> PostgresArtifacts:
    return PostgresArtifacts(roles.worker)


def build_output(stage: Stage, turn_id: str, description: str) -> Artifact:
    return Artifact(
        id=stage.ids.artifact(),
        turn_id=turn_id,
        ref="fi:outputs/chart.png",
        rn="ef:x",
        kind=ArtifactKind.OUTPUT,
        filename="chart.png",
        path=f"{turn_id}/outputs/chart.png",
        mime="image/png",
        size=2**40,
        sha256="0" * 64,
        object_key="conv_x/0",
        visibility="external",
        verdict="not scanned",
        description=description,
    )


async def test_an_attachment_is_found_by_its_id(artifacts: PostgresArtifacts, postgres_stage: Stage) -> None:
    receipt = await postgres_stage.say(uploads=(postgres_stage.upload(),))
    (attachment,) = (await postgres_stage.timelines.load_turn(ANN, receipt.turn_id)).request.attachments

    assert await artifacts.load(ANN, attachment.id) == attachment
    assert await artifacts.load_by_ref(ANN, receipt.conversation_id, attachment.ref) == attachment


async def test_a_ref_names_the_newest_of_its_files(artifacts: PostgresArtifacts, postgres_stage: Stage) -> None:
    claim = await postgres_stage.start_turn()
    assert claim.turn_id is not None
    old, new = (build_output(postgres_stage, claim.turn_id, text) for text in ("old", "new \x00"))
    files = replace(commit(claim, think(claim, "a")), artifacts=(old, new))
    await postgres_stage.timelines.commit(claim.lease, files)

    found = await artifacts.load_by_ref(ANN, claim.lease.conversation_id, old.ref)

    assert (found.id, found.description) == (new.id, "new \ufffd")
    assert (await artifacts.load(ANN, old.id)).size == 2**40


async def test_keys_that_no_row_names_are_told(artifacts: PostgresArtifacts, postgres_stage: Stage) -> None:
    upload = postgres_stage.upload()
    receipt = await postgres_stage.say(uploads=(upload,))

    keys = [upload.object_key, "conv_x/other"]

    assert await artifacts.load_unreferenced(ANN, receipt.conversation_id, keys) == ("conv_x/other",)


async def test_what_is_not_there_is_not_found(artifacts: PostgresArtifacts, postgres_stage: Stage) -> None:
    with pytest.raises(NotFound):
        await artifacts.load(ANN, postgres_stage.ids.artifact())
    with pytest.raises(NotFound):
        await artifacts.load_by_ref(ANN, postgres_stage.ids.conversation(), "fi:x")
