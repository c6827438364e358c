"""From training to a file for another program: calibrated, unsure where it should be, checked against PyTorch."""

import torch

import regmixup as rm

run = rm.train(rm.configure("digits", "regmixup", epochs=10))
predictor = rm.Predictor.from_run(run, acceptance=0.95)
print(f"temperature {predictor.temperature:.3f}, {predictor.score} threshold {predictor.threshold:.5f}")

test = rm.data.load("digits/test")
decision = predictor(test.images)
kept = decision.accepted
correct = decision.label == test.labels
print(f"digits: {kept.float().mean():.3f} accepted, accuracy {correct[kept].float().mean():.3f} of these,")
print(f"        {correct[~kept].float().mean():.3f} of the unsure")
for name in ("digits-mirrored/test", "photographs/test"):
    print(f"{name}: {predictor(rm.data.load(name).images).accepted.float().mean():.3f} accepted")

one = predictor(test.images[0])
print(f"the first image is a {one.class_names[one.label]} with probability {one.probs.max():.3f}")

predictor.export("model.pt2", pixels="uint8")  # or model.onnx, with pip install 'regmixup[onnx]'
program = torch.export.load("model.pt2").module()
difference = (program(test.images)["probs"] - decision.probs).abs().max()
print(f"the file differs from PyTorch by at most {difference:.1e}")
