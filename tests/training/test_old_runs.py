"""A configuration that the first edition of this package has written (fixtures/first-edition) keeps its fingerprint."""

import json
from pathlib import Path

from regmixup.training.run import Run

NAME = "regmixup-digits-train-small-s3-7a08476fdba9"
FOLDER = Path(__file__).parents[1] / "fixtures" / "first-edition" / "finished" / NAME


def test_a_configuration_has_the_fingerprint_it_had():
    run = Run.open(FOLDER)
    assert run.config.name == NAME
    assert run.fingerprint == json.loads((FOLDER / "provenance.json").read_text())["fingerprint"]
