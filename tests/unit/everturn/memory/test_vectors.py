from everturn.memory.postgres_search import build_vector_text


def test_a_vector_is_written_as_pgvector_reads_it() -> None:
    assert build_vector_text((0.5, -1.0, 1e-9)) == "[0.5,-1,1e-09]"
    assert build_vector_text(None) is None
