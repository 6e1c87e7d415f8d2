from everturn.events.materialized import FetchView
from everturn.events.views import StateView


def test_an_answer_without_documents_looks_like_the_state() -> None:
    assert set(FetchView.model_fields) - set(StateView.model_fields) == {"artifacts"}
    assert FetchView.model_fields["artifacts"].default is None
