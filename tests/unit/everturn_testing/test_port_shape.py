"""A driver that does not fit its port is noticed."""

from typing import Protocol

import pytest

from everturn_testing.port_shape import find_differences


class Port(Protocol):
    async def load(self, key: str, *, limit: int = 5) -> str: ...


class Fits:
    async def load(self, key: str, *, limit: int = 5) -> str:
        return key[:limit]

    async def more(self) -> None: ...


class Renamed:
    async def load(self, name: str, *, limit: int = 5) -> str:
        return name[:limit]


class OtherDefault:
    async def load(self, key: str, *, limit: int = 6) -> str:
        return key[:limit]


def test_a_driver_that_fits_has_no_differences() -> None:
    assert find_differences(Port, Fits) == []


@pytest.mark.parametrize("driver", [Renamed, OtherDefault, object])
def test_a_driver_that_does_not_fit_is_told(driver: type) -> None:
    assert len(find_differences(Port, driver)) == 1
