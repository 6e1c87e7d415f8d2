"""The drivers of Objects take the calls that are written for the port."""

import pytest

from everturn.objects.files import FileObjects
from everturn.objects.s3 import S3Objects
from everturn.ports.objects import Objects
from everturn.testing.files.objects import MemoryObjects
from everturn.testing.port_shape import find_differences


@pytest.mark.parametrize("driver", [FileObjects, S3Objects, MemoryObjects])
def test_a_driver_takes_the_ports_calls(driver: type) -> None:
    assert find_differences(Objects, driver) == []
