"""The lines of the battery's command, as `make doctor` reads them."""

import json

from everturn_local.escapes import Escapes, parse_escapes


def line(launcher: str, group: str, held: int, of: int, **missed: str) -> str:
    found = [{"group": group, "attempt": name, "detail": detail} for name, detail in missed.items()]
    return json.dumps({"launcher": launcher, "group": group, "held": held, "of": of, "missed": found})


def test_results_are_summed_by_launcher_with_failures():
    text = "\n".join([line("bubblewrap", "network", 2, 2), line("bubblewrap", "limits", 1, 2, fork="let through")])

    [found] = parse_escapes(text)

    assert (found.launcher, found.held, found.total) == ("bubblewrap", 3, 4)
    assert found.rows[-1] == "NOT DENIED limits: fork (let through)"
    assert len(found.rows) == 3


def test_an_unavailable_launcher_has_a_reason():
    text = json.dumps({"launcher": "containers", "unavailable": "No images.", "remedy": "make images"})

    assert parse_escapes(f"noise\n{text}\n") == [Escapes("containers", unavailable="No images.", remedy="make images")]


def test_an_empty_battery_output_has_no_results():
    assert parse_escapes("") == []
