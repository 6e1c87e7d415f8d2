"""Uploads get their addresses from where they belong."""

from everturn.model.identity import Principal
from everturn.model.signals import SignalKind
from everturn.model.uploads import Upload, UploadPlace, build_attachments
from everturn.testing.sequential_ids import SequentialIds

ANN = Principal("acme", "support", "ann")


def build_upload(ids: SequentialIds) -> Upload:
    return Upload(ids.artifact(), "sales.csv", "text/csv", 3, "0" * 64, "conv_x/0", "not scanned")


def test_the_files_of_a_turn_lie_under_the_turn() -> None:
    ids = SequentialIds()
    place = UploadPlace(ANN, ids.conversation(), ids.turn())

    (artifact,) = build_attachments([build_upload(ids)], place)

    assert artifact.path == f"{place.turn_id}/attachments/sales.csv"
    assert artifact.rn.startswith("ef:acme:support:chatbot:upload:ann:")
    assert (artifact.turn_id, artifact.visibility) == (place.turn_id, "external")


def test_files_of_one_name_in_two_signals_have_different_addresses() -> None:
    ids = SequentialIds()
    conversation_id, turn_id = ids.conversation(), ids.turn()
    places = [UploadPlace(ANN, conversation_id, turn_id, (SignalKind.FOLLOWUP, ids.signal())) for _ in range(2)]

    built = [build_attachments([build_upload(ids)], place)[0] for place in places]

    for field in ("ref", "rn", "path"):
        assert len({getattr(artifact, field) for artifact in built}) == 2
