"""Files of tools: where they may go, and one identity however often a call runs."""

import pytest

from chat_proc.catalog.tool import ToolCall, ToolContext
from chat_proc.tools.plan import PlanParams
from chat_proc.tools.stored_files import Destination, ProducedFile, derive_artifact_id, read_destination, save_file
from everturn.core.errors import Invalid, Unavailable
from everturn.core.identity import Principal
from everturn.core.ids import CallId, ConversationId, TurnId, is_id
from everturn.files.model import ArtifactKind, parse_rn
from everturn.history.model import Origin, read_origin
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.source_pool import MemorySourcePool
from everturn_testing.timeline import NOW
from everturn_testing.turns.live_turn import RecordingTurn

CONTEXT = ToolContext(
    principal=Principal("acme", "main", "ann"),
    conversation_id=ConversationId("conv_1"),
    turn_id=TurnId("turn_2"),
    round=1,
    blocks=(),
    now=NOW,
    pool=MemorySourcePool(),
    live=RecordingTurn(),
)
CALL = ToolCall(CallId("call_01890000-0000-7000-8000-000000000001"), PlanParams(steps=["a"]), None, CONTEXT)
FILE, OUTPUT = ArtifactKind.FILE, ArtifactKind.OUTPUT


@pytest.mark.parametrize(
    ("path", "destination"),
    [
        ("files/a/b.md", Destination(FILE, "a/b.md")),
        ("outputs/a.png", Destination(OUTPUT, "a.png")),
        ("turn_2/files/a.md", Destination(FILE, "a.md")),
        ("turn_2/outputs/a.md", Destination(OUTPUT, "a.md")),
        ("fi:turn_2.files/a.md", Destination(FILE, "a.md")),
        ("fi:turn_2.outputs/a.md", Destination(OUTPUT, "a.md")),
        ("a.md", Destination(FILE, "a.md")),
        ("notes/a.md", Destination(FILE, "notes/a.md")),
    ],
)
def test_a_path_of_this_turn_is_understood(path: str, destination: Destination) -> None:
    assert read_destination(path, CONTEXT, default=FILE) == destination


@pytest.mark.parametrize(
    "path",
    [
        "turn_1/files/a.md",
        "fi:turn_1.files/a.md",
        "fi:turn_2.user.attachments/a.csv",
        "ar:turn_2.user.prompt\\",
        "turn_2/a.md",
        "turn_2",
        "files",
        "turn_2/outputs",
        "attachments/a.csv",
        "files/../../etc/passwd",
        "/etc/passwd",
        "fi:nonsense",
        "",
    ],
)
def test_any_other_place_is_refused(path: str) -> None:
    with pytest.raises(Invalid):
        read_destination(path, CONTEXT, default=FILE)


async def test_a_stored_file_is_described_and_its_bytes_are_there(objects) -> None:
    produced = ProducedFile(Destination(OUTPUT, "q1/chart 1.csv"), b"a,b\n", "external", "exec", "Totals")

    artifact = await save_file(objects, CALL, produced)

    assert objects.stored == {artifact.object_key: b"a,b\n"}
    assert (artifact.ref, artifact.path) == ("fi:turn_2.outputs/q1/chart 1.csv", "turn_2/outputs/q1/chart 1.csv")
    assert (artifact.filename, artifact.mime, artifact.size) == ("chart 1.csv", "text/csv", 4)
    assert (artifact.visibility, artifact.description, artifact.verdict) == ("external", "Totals", "not scanned")
    assert artifact.rn == "ef:acme:main:chatbot:exec:ann:conv_1:turn_2:output:q1/chart%201.csv"
    assert parse_rn(artifact.rn).path == "q1/chart 1.csv"


async def test_the_same_call_gives_the_same_artifact(objects) -> None:
    produced = ProducedFile(Destination(FILE, "a.md"), b"x", "internal", "agent")

    assert await save_file(objects, CALL, produced) == await save_file(objects, CALL, produced)


def test_an_artifact_id_is_a_real_id_and_differs_by_call_and_path() -> None:
    ids = {
        derive_artifact_id(CallId(call_id), path, NOW)
        for call_id in (CALL.call_id, "call_01890000-0000-7000-8000-000000000002", "call_x")
        for path in ("files/a", "files/b")
    }

    assert len(ids) == 6
    assert all(is_id(artifact_id, "art") for artifact_id in ids)


async def test_an_unavailable_store_is_reported(objects) -> None:
    objects.down = True

    with pytest.raises(Unavailable):
        await save_file(objects, CALL, ProducedFile(Destination(FILE, "a.md"), b"x", "internal", "agent"))


async def test_only_an_import_has_an_origin(objects: MemoryObjects) -> None:
    origin = Origin("https://example.com/a.git", "a" * 40)
    destination = Destination(FILE, "a.md")

    imported = await save_file(objects, CALL, ProducedFile(destination, b"1", "internal", "agent", origin=origin))
    claimed = await save_file(objects, CALL, ProducedFile(destination, b"1", "internal", "exec", origin.mark))

    assert (read_origin(imported.description), read_origin(claimed.description)) == (origin, None)
