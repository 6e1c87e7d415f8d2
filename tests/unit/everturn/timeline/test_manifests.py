"""Manifests of older and newer workers are read."""

from everturn.timeline.manifests import Manifest, Preamble

OLD = (
    '{"version":1,"turn_id":"t","round":2,"model":"m","sent_at":"x","max_output_tokens":1,"tokens":3,"segments":'
    '[{"origin":"tail","ref":"","seq":0,"form":"","chars":1,"tokens":1,"sha256":"a","cache_point":false,"later":1}]}'
)


def test_a_tail_without_text_and_unknown_fields_are_accepted() -> None:
    manifest = Manifest.model_validate_json(OLD)

    (segment,) = manifest.segments
    assert (segment.origin, segment.text, manifest.system_turn) == ("tail", None, None)


def test_a_preamble_keeps_its_text() -> None:
    assert Preamble.model_validate_json(Preamble(system="Be brief.").model_dump_json()).system == "Be brief."
