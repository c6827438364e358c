"""RegMixup in a plain PyTorch loop: mixed precision, gradient accumulation, several processes, torch.compile.

python examples/in_pytorch.py, or torchrun --nproc-per-node 2 examples/in_pytorch.py
"""

import os
from contextlib import nullcontext

import torch
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

import regmixup as rm


def step(model, optimizer, scaler, objective, parts, draws, *, dtype):
    """Update the weights once, on parts of equal size of a batch; return the mean loss of the parts."""
    total = 0.0
    for number, ((x, y), draw) in enumerate(zip(parts, draws, strict=True)):
        waits = isinstance(model, DistributedDataParallel) and number < len(parts) - 1
        with model.no_sync() if waits else nullcontext():  # processes exchange gradients once per update
            with torch.autocast(x.device.type, dtype, enabled=dtype is not None):
                loss = objective(model, x, y, draw=draw).loss / len(parts)  # in float32, whatever the precision
            scaler.scale(loss).backward()
        total += loss.item()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    return total


def main():
    if "RANK" in os.environ:
        dist.init_process_group()
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    device = (
        torch.device("cuda", rank % torch.cuda.device_count()) if torch.cuda.is_available() else torch.device("cpu")
    )
    torch.manual_seed(0)
    data = rm.data.load("digits/train")
    model = rm.networks.build("small", num_classes=10, in_channels=1, normalize=((0.3,), (0.38,))).to(device)
    model.compile(backend="aot_eager")  # leave `backend` out for the fastest code
    wrapped = DistributedDataParallel(model) if dist.is_initialized() else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    dtype = torch.float16 if device.type == "cuda" else None  # None: full precision
    scaler, objective = torch.amp.GradScaler(device.type), rm.RegMixup(alpha=20)
    generator = torch.Generator().manual_seed(rank)  # each process mixes its own images, with a lambda of its own
    for epoch in range(3):
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(epoch))[rank::world]
        for index in order.split(96)[: len(data) // world // 96]:
            parts = [(data.images[i].to(device), data.labels[i].to(device)) for i in index.split(32)]
            draws = [objective.draw(len(x), x.shape[1:], generator) for x, _ in parts]
            loss = step(wrapped, optimizer, scaler, objective, parts, draws, dtype=dtype)
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {loss:.3f}")


if __name__ == "__main__":
    main()
