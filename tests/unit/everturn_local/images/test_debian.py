"""The base that we make ourselves."""

from pathlib import Path

from everturn_local.images.debian import find_mirror, remove_extras

TARGETS = """\
https://tools.example/ stable main
http://mirror.example/system/ noble-updates main
http://mirror.example/system/ noble universe
http://mirror.example/system/ noble main
"""


def test_the_mirror_is_the_one_this_machine_gets_the_release_from():
    assert find_mirror(TARGETS, "noble") == "http://mirror.example/system/"


def test_a_release_without_a_mirror_leaves_it_to_the_tool():
    assert find_mirror(TARGETS, "sid") == ""
    assert find_mirror("", "noble") == ""


def test_licences_stay_and_manuals_package_lists_and_addresses_go(tmp_path: Path):
    kept = ["usr/share/doc/x/copyright", "usr/bin/python3", "var/cache/ldconfig/aux"]
    gone = ["usr/share/doc/x/changelog.gz", "usr/share/man/man1/x.gz", "var/lib/apt/lists/index", "var/log/apt/term"]
    for name in [*kept, *gone, "etc/apt/sources.list", "etc/resolv.conf"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")

    remove_extras(tmp_path)

    assert [(tmp_path / name).exists() for name in kept + gone] == [True] * len(kept) + [False] * len(gone)
    assert (tmp_path / "etc/apt/sources.list").read_text() == ""
    assert (tmp_path / "etc/resolv.conf").read_text() == ""
