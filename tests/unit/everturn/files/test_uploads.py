"""Uploads get their addresses once it is known where they belong."""

from everturn.core.identity import Principal
from everturn.core.ids import ArtifactId, ConversationId, SignalId, TurnId
from everturn.files.model import ArtifactKind, Upload, UploadScope, build_attachments, parse_rn
from everturn.timeline.turns import SignalKind
from everturn_testing.core import BEGINNING

TURN, CONVERSATION = TurnId("turn_1"), ConversationId("conv_1")
ME = Principal("t", "p", "ann@example.org")
FILE = Upload(ArtifactId("art_1"), "a b.csv", "text/csv", 3, "ab" * 32, "conv_1/abab", "clean ClamAV 1", BEGINNING)


def test_the_files_of_a_turns_own_message_stand_under_the_turn() -> None:
    (artifact,) = build_attachments([FILE], UploadScope(ME, CONVERSATION, TURN))

    assert artifact.ref == "fi:turn_1.user.attachments/a b.csv"
    assert artifact.path == "turn_1/attachments/a b.csv"
    assert artifact.rn == "ef:t:p:chatbot:upload:ann%40example.org:conv_1:turn_1:attachment:a%20b.csv"
    assert (artifact.kind, artifact.visibility) == (ArtifactKind.ATTACHMENT, "external")
    assert (artifact.object_key, artifact.size, artifact.verdict) == (FILE.object_key, FILE.size, FILE.verdict)


def test_the_files_of_a_signal_stand_under_the_signal() -> None:
    scope = UploadScope(ME, CONVERSATION, TURN, (SignalKind.STEER, SignalId("sig_1")))

    (artifact,) = build_attachments([FILE], scope)

    assert artifact.ref == "fi:turn_1.external.steer.attachments/sig_1/a b.csv"
    assert artifact.path == "turn_1/external/steer/attachments/sig_1/a b.csv"


def test_files_of_one_name_in_two_signals_have_different_rns() -> None:
    scopes = [UploadScope(ME, CONVERSATION, TURN, (SignalKind.FOLLOWUP, SignalId(f"sig_{n}"))) for n in (1, 2)]

    rns = [build_attachments([FILE], scope)[0].rn for scope in scopes]

    assert len(set(rns)) == 2
    assert [parse_rn(rn).path for rn in rns] == ["sig_1/a b.csv", "sig_2/a b.csv"]
