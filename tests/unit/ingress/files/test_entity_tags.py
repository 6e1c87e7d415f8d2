"""Entity tags."""

import pytest

from ingress.files.service import has_tag

TAG = '"abc"'


@pytest.mark.parametrize(
    "headers",
    [['"abc"'], ['W/"abc"'], ["*"], [" * "], ['"x", W/"abc" , "y"'], ['"x"', '"abc"'], ['"a,b","abc"']],
)
def test_a_client_that_has_the_file_is_recognised(headers: list[str]) -> None:
    assert has_tag(headers, TAG)


@pytest.mark.parametrize("headers", [[], [""], ["abc"], ['"abcd"'], ['W/"x"'], ['"*"'], ['"x,abc"'], ['w"abc']])
def test_a_client_that_has_another_file_or_none_is_not(headers: list[str]) -> None:
    assert not has_tag(headers, TAG)
