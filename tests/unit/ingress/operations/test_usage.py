"""An operator reads the usage of a tenant."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from everturn.accounts.usage import UsageTotal
from everturn.core.errors import Unavailable
from ingress.operations.commands import OfflineCommand, parse_arguments
from ingress.operations.data import MAX_ROWS, build_usage_command

TOTAL = UsageTotal("acme", "one", "ann", date(2026, 11, 3), "m", "decision", 2, 0, 1, 20, 10, 6, 2, 0.5)


class Report:
    """Rows in memory; records its calls."""

    def __init__(self, *totals: UsageTotal, down: bool = False) -> None:
        self.totals, self.down = totals, down
        self.asked: list[tuple[str | None, date, date]] = []

    async def load(self, tenant: str | None, start: date, end: date, limit: int) -> tuple[UsageTotal, ...]:
        if self.down:
            raise Unavailable("Postgres: gone")
        self.asked.append((tenant, start, end))
        return self.totals[:limit]

    def run(self, *words: str) -> int:
        command, read = parse_arguments({"usage": build_usage_command(self.load)}, ["usage", *words], default="usage")
        assert isinstance(command, OfflineCommand)
        return command.run(read)


def test_totals_are_lines_with_tabs(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(TOTAL)

    status = report.run("--tenant", "acme", "--from", "2026-11-01", "--to", "2026-12-01")

    head, line = capsys.readouterr().out.splitlines()
    assert status == 0
    assert report.asked == [("acme", date(2026, 11, 1), date(2026, 12, 1))]
    assert head.startswith("tenant\tproject\tuser_id\tday\tmodel\trole\tcalls\t")
    assert line == "acme\tone\tann\t2026-11-03\tm\tdecision\t2\t0\t1\t20\t10\t6\t2\t0.5"


def test_without_days_the_last_thirty_are_reported() -> None:
    report = Report()

    report.run()

    ((tenant, start, end),) = report.asked
    assert (tenant, end - start) == (None, timedelta(days=30))
    assert end > datetime.now(UTC).date()


def test_a_report_that_is_cut_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert Report(*(replace(TOTAL, user_id=f"u{n}") for n in range(MAX_ROWS + 1))).run() == 1
    said = capsys.readouterr()
    assert (len(said.out.splitlines()), "fewer days" in said.err) == (MAX_ROWS + 1, True)


def test_a_database_that_is_away_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert Report(down=True).run() == 1
    assert "Postgres: gone" in capsys.readouterr().err
