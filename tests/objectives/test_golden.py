"""Golden loss traces: 20 steps of SGD per objective, in float64 on the CPU. A refactor must reproduce them.

After a change that is meant to change the numbers, or when an objective is added, write them again with

    python -m tests.objectives.test_golden

and say in the commit why they changed.
"""

import json
from pathlib import Path
from unittest import mock

import pytest
import torch

from tests.objectives.cases import OBJECTIVE_CASES, batch_for, net_for, seeded

GOLDEN = Path(__file__).parents[1] / "golden" / "objectives.json"
STEPS = 20


def normal(shape, generator):
    """Normal numbers as every processor draws them: torch's float32 ones depend on the width of its vectors."""
    return torch.randn(shape, dtype=torch.float64, generator=generator).float()


@mock.patch("regmixup.augmentations.basic.sample_normal", normal)
def trace(objective):
    """The losses of 20 steps, each on a fresh batch of 6."""
    model = net_for(objective, dtype=torch.float64)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    generator = seeded(1)
    losses = []
    for step in range(STEPS):
        x, y = batch_for(objective, 6, dtype=torch.float64, seed=step)
        loss = objective(model, x, y, generator).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def test_there_is_one_golden_trace_for_every_case():
    golden = json.loads(GOLDEN.read_text())
    assert sorted(golden) == sorted(OBJECTIVE_CASES), "run: python -m tests.objectives.test_golden"
    assert all(len(losses) == STEPS for losses in golden.values())
    assert len({tuple(losses) for losses in golden.values()}) == len(golden) - 2, "only a weight of 0 equals ERM"
    assert golden["regmixup/eta=0"] == golden["augmix/jsd_weight=0"] == golden["erm"]


@pytest.mark.parametrize("name", OBJECTIVE_CASES)
def test_twenty_steps_reproduce_the_golden_losses(name):
    expected = json.loads(GOLDEN.read_text())[name]
    assert trace(OBJECTIVE_CASES[name]) == pytest.approx(expected, rel=1e-9, abs=0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    traces = {name: trace(objective) for name, objective in OBJECTIVE_CASES.items()}
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(json.dumps(traces, indent=1) + "\n")
    print(f"{len(traces)} traces of {STEPS} losses -> {GOLDEN}")
