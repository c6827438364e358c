"""How deep the loss lies: frames of this package between the command line and `F.cross_entropy`."""

import sys
from pathlib import Path

import torch

import regmixup
from regmixup.cli import main

SOURCE = str(Path(regmixup.__file__).parent)
MOST = 11


def test_few_frames_lie_between_the_command_line_and_the_loss(tmp_path, monkeypatch):
    stacks = []
    original = torch.nn.functional.cross_entropy

    def recorded(*args, **kwargs):
        frame, found = sys._getframe(1), []
        while frame is not None:
            if frame.f_code.co_filename.startswith(SOURCE):
                found.append(f"{frame.f_code.co_filename.removeprefix(SOURCE)} {frame.f_code.co_qualname}")
            frame = frame.f_back
        stacks.append(found[::-1])
        return original(*args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "cross_entropy", recorded)
    flags = ["--epochs", "1", "--batch-size", "450", "--device", "cpu", "--runs", str(tmp_path)]
    assert main(["train", "--method", "regmixup", *flags]) == 0
    deepest = max(stacks, key=len)
    assert "/training/step.py ForwardPass.forward" in deepest
    assert len(deepest) <= MOST, "\n".join(deepest)
