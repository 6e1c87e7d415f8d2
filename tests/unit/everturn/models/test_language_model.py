"""The failures of the language model port carry what the loop must decide on."""

from everturn.models.port import ContextLimitExceeded, ModelFailed


def test_a_failure_is_not_retryable_by_default() -> None:
    failure = ModelFailed("no answer")

    assert (failure.retryable, failure.retry_after_s, failure.partial) == (False, None, False)
    assert str(failure) == "The language model did not answer. no answer"


def test_a_request_that_is_too_long_is_a_failure_too() -> None:
    failure = ContextLimitExceeded("200000 tokens")

    assert isinstance(failure, ModelFailed)
    assert not failure.retryable
    assert str(failure) == "The request is longer than the model's context. 200000 tokens"
