"""The platform with its files in a bucket: one goes in with a message, one is written by a turn, both come back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.forks import ForkingSpawn
from helpers.homes import copy_home
from helpers.s3 import BUCKET, KEYS, run_rclone

from everturn_local.supervision.platform import Platform

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("redirect", ["0", "1"])
async def test_files_go_into_the_bucket_and_come_back(
    tmp_path: Path, make_harness: Callable[[Platform], Any], redirect: str
) -> None:
    sent_file = tmp_path / "sales.csv"
    sent_file.write_text("region,revenue\n" + "North,240.50\n" * 30_000)
    script = Path(__file__).with_name("scripts.toml")
    with run_rclone(tmp_path / "bucket") as s3:
        env = {"OBJECTS_URL": s3.url("files"), "EVERTURN_MODEL": f"scripted:{script}", "FILES_REDIRECT": redirect}
        async with Platform(
            copy_home(tmp_path / "home"), workers=1, env={**env, **KEYS}, durable=False, spawn=ForkingSpawn()
        ) as platform:
            harness = make_harness(platform)
            client = harness.clients[0]
            sent = await client.send_message("new", "script:write", files=[sent_file])
            turn = await harness.watch(sent.conversation_id).wait_ended(sent.turn_id)

            (written,), (attached,) = turn.files, turn.attachments
            note = await client.download(written.artifact_id, tmp_path / "note.md")
            back = await client.download(attached.artifact_id, tmp_path / "back.csv")
            await harness.quit()
        keys = [row["Key"] for row in s3.client().list_objects_v2(Bucket=BUCKET)["Contents"]]

    assert turn.status == "completed"
    assert note.read_text() == "# Note\n\nWritten once, shown once.\n"
    assert back.read_bytes() == sent_file.read_bytes()
    assert len([key for key in keys if key.startswith(f"files/{sent.conversation_id}/")]) >= 2
    assert not list((tmp_path / "home" / "objects").rglob("*.*"))
