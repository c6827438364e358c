"""RegMixup with timm: as a task of its own, and as the `mixup_fn` of its training script."""

import timm
import torch
from timm.loss import SoftTargetCrossEntropy
from timm.task import ClassificationTask

import regmixup as rm


def make_task(model, objective, generator=None):
    """Return a timm task that trains by any objective, and evaluates by plain cross-entropy.

    generator: of the mixing; None is torch's global one.
    """

    class ObjectiveTask(ClassificationTask):
        def forward(self, input, target):
            model = self.trainable_module
            out = (self.criterion if model.training else rm.ERM())(model, input, target, generator=generator)
            return {"loss": out.loss, "output": out.logits}

    return ObjectiveTask(model, objective, verbose=False)


def script_step(model, mixup_fn, loss_fn, input, target):
    """Return the loss as timm's training script computes it, without the prefetcher."""
    input, target = mixup_fn(input, target)
    return loss_fn(model(input), target)


def main():
    torch.manual_seed(0)
    data, objective = rm.data.load("digits/train"), rm.RegMixup(alpha=20)
    model = timm.create_model("test_resnet", num_classes=10, in_chans=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    task = make_task(model, objective)
    mixup_fn, loss_fn = rm.BatchTransform(objective, num_classes=10), SoftTargetCrossEntropy()
    for epoch in range(2):
        for index in torch.randperm(len(data)).split(64):
            x, y = data.images[index] / 255, data.labels[index]
            # Both ways compute the same loss.
            loss = task(x, y)["loss"] if epoch < 1 else script_step(model, mixup_fn, loss_fn, x, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
