"""Whether containers are chosen, with a real engine."""

from pathlib import Path

from everturn_local.images.choice import choose_containers, find_missing_image
from everturn_local.images.engine import Engine
from everturn_local.settings import load_environment


def test_a_missing_or_outdated_image_rules_out_containers(engine: Engine, repository: str, supervisor_image: str):
    absent, image = f"{repository}:absent", engine.try_load_image(supervisor_image)
    assert image is not None
    assert find_missing_image(engine, [absent]) == f"there is no image {absent}"
    assert find_missing_image(engine, [image.id]) == ""

    choice = choose_containers(
        {**load_environment(), "EXECUTION_PROFILES": f'{{"a": {{"executor_image": "{absent}"}}}}'},
        Path("/h/broker.sock"),
    )

    assert not choice.chosen
    assert choice.why.startswith(("there is no image", "the image"))
