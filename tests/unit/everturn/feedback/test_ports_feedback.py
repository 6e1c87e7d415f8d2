"""The drivers of FeedbackBook take the calls that are written for the port."""

import pytest

from everturn.feedback.model import FeedbackBook
from everturn.feedback.postgres import PostgresFeedback
from everturn_testing.port_shape import find_differences


@pytest.mark.parametrize("driver", [PostgresFeedback])
def test_a_driver_takes_the_ports_calls(driver: type) -> None:
    assert find_differences(FeedbackBook, driver) == []
