"""The drivers of Objects take the calls that are written for the port."""

import pytest

from everturn.files.filesystem import FileObjects
from everturn.files.objects import Objects
from everturn.files.s3 import S3Objects
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.port_shape import find_differences


@pytest.mark.parametrize("driver", [FileObjects, S3Objects, MemoryObjects])
def test_a_driver_takes_the_ports_calls(driver: type) -> None:
    assert find_differences(Objects, driver) == []
