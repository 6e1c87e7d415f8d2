from pathlib import Path

import pytest
from suite.groups import (
    GROUPS,
    Group,
    TestsWithoutGroup,
    build_selection,
    check_every_test_has_a_group,
    load_test_files,
    try_find_group,
)

UNIT, DEEPER, OTHER = Group("tests/unit"), Group("tests/unit/chat"), Group("tests/unit/chatter")


def test_every_test_file_of_this_repository_has_a_group(repository: Path):
    files = load_test_files(repository)

    assert f"tests/unit/support/suite/{Path(__file__).name}" in files
    check_every_test_has_a_group(files)


def test_every_group_of_this_repository_has_tests(repository: Path):
    with_tests = {try_find_group(file) for file in load_test_files(repository)}

    assert with_tests == set(GROUPS)


def test_group_names_are_distinct():
    assert len({group.name.replace("/", "-") for group in GROUPS}) == len(GROUPS)


@pytest.mark.parametrize(
    ("file", "group"),
    [
        ("tests/unit/test_a.py", UNIT),
        ("tests/unit/chat/test_a.py", DEEPER),
        ("tests/unit/chat/deep/test_a.py", DEEPER),
        ("tests/unit/chatter/test_a.py", OTHER),
        ("tests/unit/chatting/test_a.py", UNIT),
        ("tests/units/test_a.py", None),
        ("tests/test_a.py", None),
    ],
)
def test_the_nearest_folder_decides(file: str, group: Group | None):
    assert try_find_group(file, [UNIT, DEEPER, OTHER]) == group
    assert try_find_group(file, [OTHER, DEEPER, UNIT]) == group


def test_tests_that_no_group_runs_are_named():
    with pytest.raises(TestsWithoutGroup, match=r"tests/new/test_a\.py, tests/test_b\.py"):
        check_every_test_has_a_group(["tests/unit/test_c.py", "tests/test_b.py", "tests/new/test_a.py"], [UNIT])


def test_a_group_leaves_out_the_groups_inside_it():
    assert build_selection(UNIT, [UNIT, DEEPER, OTHER]) == [
        "tests/unit",
        "--ignore=tests/unit/chat",
        "--ignore=tests/unit/chatter",
    ]
    assert build_selection(DEEPER, [UNIT, DEEPER, OTHER]) == ["tests/unit/chat"]
