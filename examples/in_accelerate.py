"""RegMixup in an Accelerate loop with gradient accumulation: python or `accelerate launch` examples/in_accelerate.py"""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

import regmixup as rm


def train_epoch(accelerator, model, optimizer, loader, objective, generator=None):
    """Train for an epoch; return the losses of its batches. generator: of the mixing; None is torch's global one."""
    losses = []
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = objective(model, x, y, generator=generator).loss
            accelerator.backward(loss)  # divides by the number of accumulated batches
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def scores(accelerator, model, loader):
    """Return the OOD scores of all processes, without the samples that Accelerate repeats to fill the last batch."""
    parts = [accelerator.gather_for_metrics(rm.scores.dempster_shafer(model(x))) for (x,) in loader]
    return torch.cat(parts)


def main():
    torch.manual_seed(0)
    train, test, ood = (rm.data.load(name) for name in ("digits/train", "digits/test", "photographs/test"))
    accelerator = Accelerator(gradient_accumulation_steps=2)
    model = rm.networks.build("small", num_classes=10, in_channels=1, normalize=((0.3,), (0.38,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = DataLoader(TensorDataset(train.images, train.labels), batch_size=32, shuffle=True)
    loaders = [DataLoader(TensorDataset(data.images), batch_size=256) for data in (test, ood)]
    model, optimizer, loader, *loaders = accelerator.prepare(model, optimizer, loader, *loaders)
    generator = torch.Generator().manual_seed(accelerator.process_index)
    for epoch in range(4):
        losses = train_epoch(accelerator, model, optimizer, loader, rm.RegMixup(alpha=20), generator)
        accelerator.print(f"epoch {epoch + 1}: loss {sum(losses) / len(losses):.3f}")
    model.eval()
    found = rm.metrics.auroc(*(scores(accelerator, model, part).cpu() for part in loaders))
    accelerator.print(f"AUROC {found:.3f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
