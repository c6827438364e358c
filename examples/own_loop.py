"""RegMixup in a training loop of your own: any module, any optimizer, two lines."""

import torch
from torch import nn

import regmixup as rm

torch.manual_seed(0)
train, val, test = (rm.data.load(f"digits/{split}") for split in ("train", "val", "test"))
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
objective = rm.RegMixup(alpha=20)

for epoch in range(10):
    for index in torch.randperm(len(train)).split(50):
        out = objective(model, train.images[index], train.labels[index])
        optimizer.zero_grad()
        out.loss.backward()
        optimizer.step()
    print(f"epoch {epoch + 1}: clean {out.parts['clean']:.3f}, mixed {out.parts['mixed']:.3f}")  # of its last batch

with torch.no_grad():
    val_logits, logits = model(val.images / 255), model(test.images / 255)
scaling = rm.posthoc.TemperatureScaling().fit(val_logits, val.labels)  # mixed labels make a model less sure
probs, scaled = logits.softmax(dim=1), scaling(logits).softmax(dim=1)
print(f"test accuracy {rm.metrics.accuracy(probs, test.labels):.3f}")
print(f"ECE {rm.metrics.ece(probs, test.labels):.3f}, {rm.metrics.ece(scaled, test.labels):.3f} with a temperature")
