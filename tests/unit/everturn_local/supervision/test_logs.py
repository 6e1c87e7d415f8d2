"""Bounded logs, and errors read along."""

import json
from pathlib import Path

from everturn_local.supervision.logs import MAX_LOG_BYTES, LogWatch, load_tail, render_entries, save_rotated


def entry(level: str, event: str, **more: str) -> str:
    return json.dumps({"level": level, "event": event, **more})


def test_a_loaded_bundle_is_shown():
    assert render_entries("w", [entry("info", "Loaded a bundle", bundle_id="desk")]) == ["w: Loaded a bundle: desk"]


def test_what_an_author_has_to_correct_is_shown():
    why = "The command npxx does not exist here."
    line = entry("warning", "Could not connect to an MCP server", server="list", why=why)
    assert render_entries("w", [line]) == [f"w: Could not connect to an MCP server: list: {why}"]
    line = entry("warning", "Could not update a knowledge space", bundle_id="desk", space="docs", error="No folder.")
    assert render_entries("w", [line]) == ["w: Could not update a knowledge space: desk: docs: No folder."]
    unnamed = entry("warning", "Could not update a knowledge space", bundle_id="desk", space="", error="No folder.")
    assert render_entries("w", [unnamed]) == ["w: Could not update a knowledge space: desk: No folder."]
    line = entry("warning", "Model call failed", error="The language model did not answer. a.toml, line 2: No reply.")
    assert "a.toml, line 2: No reply." in render_entries("w", [line])[0]


def test_what_a_program_writes_controls_no_terminal():
    line = entry("info", "Output of an MCP server", server="list", text="\x1b[2Jx\rw: Loaded a bundle: desk")
    [shown] = render_entries("w", [line])
    assert shown.isprintable() and "\\x1b[2J" in shown
    [failed] = render_entries("w", [entry("error", "turn_failed", error="\x1b]0;x\x07")])
    assert failed.isprintable()


def test_other_entries_than_errors_are_not_shown_and_errors_in_short():
    lines = [entry("info", "started"), "no json", "{broken", entry("error", "x" * 1_500), entry("critical", "gone")]

    shown = render_entries("worker-1", lines)

    assert [len(line) <= 610 for line in shown] == [True, True]
    assert shown[1] == "worker-1: gone"


def test_the_cause_of_an_error_is_its_last_line():
    lines = [entry("error", "turn_failed", exception="Traceback\n  File x\nValueError: no")]

    assert render_entries("worker-1", lines) == ["worker-1: turn_failed (ValueError: no)"]


def test_errors_name_the_bundle_or_the_tool():
    refused = "A bundle can't be used; its previous version continues"
    lines = [
        entry("error", refused, bundle_id="huts", error="IndentationError: unexpected indent (huts.py, line 59)"),
        entry("error", refused, bundle_id="huts", error="pip ended with status 1.\nmore\nERROR: No match for x"),
        entry("error", "Tool raised an exception", tool_id="huts.find", error="ZeroDivisionError: division by zero"),
    ]

    assert render_entries("w", lines) == [
        f"w: {refused}: huts (IndentationError: unexpected indent (huts.py, line 59))",
        f"w: {refused}: huts (pip ended with status 1.)\n    more\n    ERROR: No match for x",
        "w: Tool raised an exception: huts.find (ZeroDivisionError: division by zero)",
    ]


def test_a_flood_of_errors_is_counted():
    shown = render_entries("w", [entry("error", str(number)) for number in range(9)], max_lines=2)

    assert shown == ["w: 0", "w: 1", "w: 7 more, see its log"]


def test_a_watch_returns_lines_added_since_the_last_call(tmp_path: Path):
    log = tmp_path / "w.log"
    log.write_text(entry("error", "old") + "\n")
    watch = LogWatch("w", log)

    with log.open("a") as file:
        file.write(entry("error", "new") + "\n" + entry("error", "unfinished"))
    first = watch.load_new()
    with log.open("a") as file:
        file.write("\n")

    assert (first, watch.load_new(), watch.load_new()) == (["w: new"], ["w: unfinished"], [])


def test_a_watch_survives_an_absent_and_a_shortened_log(tmp_path: Path):
    log = tmp_path / "w.log"
    watch = LogWatch("w", log)

    absent = watch.load_new()
    log.write_text(entry("error", "a") * 3 + "\n" + entry("error", "b") + "\n")
    found = watch.load_new()
    log.write_text(entry("error", "c") + "\n")

    assert (absent, found) == ([], ["w: b"])
    assert watch.load_new() == []


def test_a_large_log_is_rotated_and_one_older_is_kept(tmp_path: Path):
    log = tmp_path / "w.log"
    with log.open("wb") as file:
        file.truncate(MAX_LOG_BYTES + 1)

    save_rotated(log)
    save_rotated(log)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["w.log.1"]


def test_the_tail_of_an_absent_log_is_empty(tmp_path: Path):
    (tmp_path / "w.log").write_text("\n".join(map(str, range(99))))

    assert load_tail(tmp_path / "absent.log") == []
    assert load_tail(tmp_path / "w.log", start=(tmp_path / "w.log").stat().st_size) == []
    assert load_tail(tmp_path / "w.log", max_lines=2) == ["97", "98"]
