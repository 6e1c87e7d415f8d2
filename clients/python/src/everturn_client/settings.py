"""The client's settings from the environment; the only place that reads it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from zoneinfo import ZoneInfo

from everturn_client.errors import check_utf8

DEFAULT_URL = "http://127.0.0.1:8080"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """`url` of the server, `token` to send, `state_dir` for remembered conversations, `colour` unless NO_COLOR is
    set."""

    url: str
    token: str | None
    state_dir: Path
    colour: bool
    time_zone: str | None = None


def load_settings(environ: Mapping[str, str] | None = None) -> ClientSettings:
    """Read EVERTURN_URL, EVERTURN_TOKEN, XDG_STATE_HOME, NO_COLOR and TZ, or the time zone of this machine.

    A file with DOS line ends leaves a carriage return after each value, so whitespace around URL and token is stripped.
    Raises BadInput for a URL that is not UTF-8. `Requests` checks the token.
    """
    env = os.environ if environ is None else environ
    url = env.get("EVERTURN_URL", "").strip()
    check_utf8(url, "EVERTURN_URL", "Check its value and set it again.")
    state_home = env.get("XDG_STATE_HOME", "")
    # The XDG specification says to ignore a relative path.
    root = (
        Path(state_home) if Path(state_home).is_absolute() else Path(env.get("HOME", "~")).expanduser() / ".local/state"
    )
    return ClientSettings(
        url=url or DEFAULT_URL,
        token=env.get("EVERTURN_TOKEN", "").strip() or None,
        state_dir=root / "everturn",
        colour=not env.get("NO_COLOR"),
        time_zone=_find_time_zone(env.get("TZ", "")),
    )


def _find_time_zone(variable: str) -> str | None:
    """An IANA name; None if neither TZ nor the link of this machine's zone has one."""
    if not variable:
        _, _, name = os.path.realpath("/etc/localtime").rpartition("/zoneinfo/")
        return name or None
    name = variable.removeprefix(":")
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # KeyError: ZoneInfoNotFoundError; TZ may be a rule, such as EST5EDT4
        return None
    return name
