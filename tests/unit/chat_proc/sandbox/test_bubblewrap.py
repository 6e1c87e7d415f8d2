"""Why there is no sandbox, in one sentence with one command."""

import os
from pathlib import Path

import pytest

from chat_proc.sandbox.bubblewrap import (
    HostSettings,
    build_missing,
    check_version,
    explain_failure,
    load_bwrap,
    load_host_settings,
)
from chat_proc.sandbox.port import SandboxUnavailable

PLAIN = HostSettings(None, None, 1000)
REFUSED = "bwrap: setting up uid map: Permission denied"


@pytest.mark.parametrize(
    ("detail", "settings", "reason", "remedy"),
    [
        (
            REFUSED,
            HostSettings(0, None, 1000),
            "forbidden to ordinary users",
            "sysctl -w kernel.unprivileged_userns_clone=1",
        ),
        (REFUSED, HostSettings(1, 1, 1000), "AppArmor", "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"),
        (REFUSED, HostSettings(1, 1, 0), "switched off", "sysctl -w user.max_user_namespaces=10000"),
        ("RuntimeError: Unable to find libseccomp", PLAIN, "libseccomp", "apt-get install -y libseccomp2"),
        ("bwrap: Creating new namespace failed: Operation not permitted", PLAIN, "perhaps a container", ""),
        ("something\n else.", HostSettings(1, 1, 9), "A trial run in bubblewrap failed: something else.", ""),
        ("", PLAIN, "no reason given", ""),
    ],
)
def test_a_failed_trial_is_explained(detail, settings, reason, remedy):
    unavailable = explain_failure(detail, settings)

    assert reason in unavailable.reason
    assert unavailable.remedy == remedy


def test_a_missing_bubblewrap_names_its_package():
    assert build_missing().remedy == "apt-get install -y bubblewrap"


def install_bwrap(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "bwrap"
    program.write_text(script)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


async def test_a_bubblewrap_that_hangs_is_killed_and_reported(tmp_path, monkeypatch):
    install_bwrap(tmp_path, f"#!/bin/sh\necho $$ > {tmp_path}/pid\nsleep 60\nexit\n", monkeypatch)

    with pytest.raises(SandboxUnavailable, match="did not answer within 1 s"):
        await load_bwrap(timeout_s=1)

    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_a_bubblewrap_that_does_not_run_is_reported(tmp_path, monkeypatch):
    install_bwrap(tmp_path, "no program", monkeypatch)

    with pytest.raises(SandboxUnavailable, match=r"bwrap does not run: Exec format error\."):
        await load_bwrap()


@pytest.mark.parametrize("text", ["bubblewrap 0.8.0\n", "bubblewrap 0.11.0", "bubblewrap 1.0"])
def test_a_new_enough_bubblewrap_passes(text):
    check_version(text)


@pytest.mark.parametrize("text", ["bubblewrap 0.6.1\n", "", "what"])
def test_an_old_or_strange_one_does_not(text):
    with pytest.raises(SandboxUnavailable, match=r"0\.8 or later"):
        check_version(text)


def test_settings_are_read_and_may_be_absent(tmp_path):
    (tmp_path / "kernel").mkdir()
    (tmp_path / "kernel" / "unprivileged_userns_clone").write_text("0\n")
    (tmp_path / "kernel" / "apparmor_restrict_unprivileged_userns").write_text("what\n")

    assert load_host_settings(tmp_path) == HostSettings(0, None, None)
