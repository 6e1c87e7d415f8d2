"""The numbers that ANNOUNCE shows."""

from chat_proc.workspace.local import describe_limits


def test_the_limits_are_one_line_with_their_units() -> None:
    line = describe_limits()

    assert "\n" not in line
    assert "one file 64 MiB" in line
    assert "files/ 500 files" in line
