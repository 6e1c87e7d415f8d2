"""Files folded from blocks, and which of them a model is to look at."""

from chat_proc.attachments.media import describe_media
from chat_proc.timeline.artifacts import block_artifacts, block_media, fold_artifacts
from everturn.core.ids import SignalId
from everturn.files.model import ArtifactKind
from everturn.timeline.blocks import BlockType, CheckoutBody, EventBody
from everturn_testing.timeline import TimelineBuilder, build_file

CSV = build_file("turn_1", "sales.csv", b"a,b", mime="text/csv")
PHOTO = build_file("turn_1", "photo.png", b"png", mime="image/png")
REPORT = build_file("turn_2", "report.pdf", b"pdf", mime="application/pdf")
CHART = build_file("turn_1", "chart.png", b"chart", mime="image/png", kind=ArtifactKind.OUTPUT)


def play() -> TimelineBuilder:
    timeline = TimelineBuilder()
    timeline.start_turn("turn_1", "Look", CSV, PHOTO)
    timeline.start_round()
    timeline.result("call_1", "exec_tools.execute_code_python", "done", CHART)
    timeline.start_turn("turn_2", "And now?")
    timeline.say("followup", "sig_1", "this too", REPORT)
    return timeline


def test_files_come_from_attachments_signals_and_results() -> None:
    assert list(fold_artifacts(play().blocks)) == [CSV.ref, PHOTO.ref, CHART.ref, REPORT.ref]


def test_files_also_come_from_checkouts_and_events() -> None:
    timeline, copy = play(), build_file("turn_2", "a.py", b"a", kind=ArtifactKind.FILE)
    form = build_file("turn_2", "form.png", b"form", mime="image/png")
    body = CheckoutBody(mode="overlay", sources=("fi:turn_1.files/a.py",), artifacts=(copy,))
    timeline.add(BlockType.CHECKOUT, "ar:turn_2.artifacts.checkout", body)
    event = EventBody(signal_id=SignalId("sig_2"), kind="form", text="", attachments=(form,))
    timeline.add(BlockType.EXTERNAL_EVENT, "ar:turn_2.external.form.sig_2", event)

    assert list(fold_artifacts(timeline.blocks))[-2:] == [copy.ref, form.ref]


def test_a_file_written_again_counts_with_its_last_content() -> None:
    timeline = play()
    newer = build_file("turn_1", "chart.png", b"newer", mime="image/png", kind=ArtifactKind.OUTPUT)
    timeline.result("call_2", "react.write", "written", newer)

    assert fold_artifacts(timeline.blocks)[CHART.ref].sha256 == newer.sha256


def test_produced_images_are_not_shown_unasked_and_strange_data_is_ignored() -> None:
    timeline = play()
    timeline.result("call_4", "other.tool", "x", CHART, data={"attached": "yes"})

    assert block_media(timeline.blocks[-1]) == ()


def test_files_of_an_outside_event_are_files_too() -> None:
    timeline = play()
    body = EventBody(signal_id=SignalId("sig_2"), kind="form", text="", attachments=(PHOTO,))

    block = timeline.add(BlockType.EXTERNAL_EVENT, "ar:turn_2.external.form.sig_2", body)

    assert block_artifacts(block) == (PHOTO,)
    assert block_media(block) == (describe_media(PHOTO),)
