"""Dates and times of requests, as all rooms read them."""

import re
from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BeforeValidator

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]")


def check_year(moment: datetime) -> datetime:
    """Refuse years that a database or a calendar of another zone does not know."""
    if not 1900 <= moment.year < 9000:
        raise ValueError("must be between the years 1900 and 9000")
    return moment


def check_written(value: object) -> object:
    """Refuse numbers, also as text, which would be taken for seconds since 1970."""
    if isinstance(value, str) and not _DATE.match(value):
        raise ValueError("must be a date and time such as 2026-03-01T00:00:00Z")
    if not isinstance(value, str | datetime):
        raise ValueError("must be a string such as 2026-03-01T00:00:00Z")
    return value


Moment = Annotated[AwareDatetime, BeforeValidator(check_written), AfterValidator(check_year)]
"""A date and time with its offset from UTC, in a year that a database knows."""
