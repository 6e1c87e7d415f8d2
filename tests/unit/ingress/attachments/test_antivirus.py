"""Which antivirus is chosen; the integration tests use a real clamd."""

import pytest

from everturn.core.errors import Unavailable
from ingress.attachments.antivirus import (
    Antivirus,
    Clamd,
    Infected,
    NoScan,
    RefuseAll,
    Unscannable,
    build_verdict,
    check_reply,
    open_antivirus,
)


def choose(**changes: object) -> Antivirus:
    settings = {"clamd_url": None, "development": False, "av_scan": ""} | changes
    with open_antivirus(**settings) as antivirus:  # type: ignore[arg-type]
        return antivirus


def test_with_clamd_files_are_scanned() -> None:
    assert isinstance(choose(clamd_url="tcp://127.0.0.1:3310"), Clamd)
    assert isinstance(choose(clamd_url="unix:///run/clamd", development=True), Clamd)


def test_without_clamd_only_development_accepts_files_as_unscanned() -> None:
    for av_scan in ("", "0"):
        assert isinstance(choose(development=True, av_scan=av_scan), NoScan)
    assert isinstance(choose(), RefuseAll)
    assert isinstance(choose(development=True, av_scan="1"), RefuseAll)


def test_the_reason_names_what_is_used_and_how_to_change_it() -> None:
    chosen = [
        choose(clamd_url=url, development=True, av_scan=av_scan)
        for url, av_scan in (("unix:///h/clamd.sock", ""), (None, ""), ("unix:///h/clamd.sock", "0"))
    ]

    assert [each.why for each in chosen] == [
        "at unix:///h/clamd.sock; set CLAMD_URL to use another one",
        "no clamd in development mode; set CLAMD_URL to use one",
        "APP_AV_SCAN=0",
    ]


async def test_verdicts_without_a_scan_say_so_and_refusals_say_why() -> None:
    assert await NoScan().scan(b"x") == "not scanned"
    assert await NoScan().load_verdict() == "not scanned"
    await NoScan().check()
    with pytest.raises(Unavailable, match="because"):
        await RefuseAll("because").scan(b"x")
    with pytest.raises(Unavailable, match="because"):
        await RefuseAll("because").check()
    with pytest.raises(Unavailable, match="because"):
        await RefuseAll("because").load_verdict()


def test_only_a_whole_ok_is_a_clean_file() -> None:
    check_reply("stream: OK")


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ("stream: Eicar-Signature FOUND", Infected),
        ("stream: Heuristics.Limits.Exceeded.MaxFileSize FOUND", Unscannable),
        ("stream: Heuristics.Encrypted.Zip FOUND", Unscannable),
        ("INSTREAM size limit exceeded. ERROR", Unscannable),
        ("stream: Can't allocate memory ERROR", Unavailable),
        ("stream: ", Unavailable),
        ("OK", Unavailable),
        ("", Unavailable),
        ("UNKNOWN COMMAND", Unavailable),
    ],
)
def test_anything_else_is_none(reply: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        check_reply(reply)


def test_a_verdict_names_engine_and_signatures() -> None:
    assert build_verdict("ClamAV 1.4.2/27500/Mon Jan  5 2026") == "clean ClamAV 1.4.2 27500"
    assert build_verdict("ClamAV 1.4.2") == "clean ClamAV 1.4.2"
    with pytest.raises(Unavailable):
        build_verdict("UNKNOWN COMMAND")
