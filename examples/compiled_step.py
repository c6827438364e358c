"""A compiled step: randomness is drawn outside, so the step is a pure tensor function without graph breaks."""

import torch

import regmixup as rm

torch.manual_seed(0)
data = rm.data.load("digits/train")
model = rm.networks.build("small", num_classes=10, in_channels=1, normalize=((0.3,), (0.38,)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
objective = rm.RegMixup(alpha=20, lam="sample")
generator = torch.Generator().manual_seed(0)  # the mixing, apart from everything else


@torch.compile(fullgraph=True, backend="aot_eager")  # leave `backend` out for the fastest code
def loss(x: torch.Tensor, y: torch.Tensor, draw: rm.Draw) -> torch.Tensor:
    return objective(model, x, y, draw=draw).loss


for step, index in enumerate(torch.randperm(len(data))[:384].split(64)):
    draw = objective.draw(64, image_size=8, generator=generator)
    value = loss(data.images[index], data.labels[index], draw)
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
    print(f"step {step}: {value.item():.3f}")
