"""RegMixup in a training loop of your own: any module, any optimizer, two lines."""

import torch
from torch import nn

import regmixup as rm

torch.manual_seed(0)
train, test = rm.data.load("digits/train"), rm.data.load("digits/test")
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
objective = rm.RegMixup(alpha=20)

for epoch in range(10):
    for index in torch.randperm(len(train)).split(64):
        out = objective(model, train.images[index], train.labels[index])
        optimizer.zero_grad()
        out.loss.backward()
        optimizer.step()
    print(f"epoch {epoch + 1}: clean {out.parts['clean']:.3f}, mixed {out.parts['mixed']:.3f}")

with torch.no_grad():
    probs = model(test.images / 255).softmax(dim=1)
print(f"test accuracy {rm.metrics.accuracy(probs, test.labels):.3f}, ECE {rm.metrics.ece(probs, test.labels):.3f}")
