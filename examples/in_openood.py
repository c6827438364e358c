"""Our networks in OpenOOD's evaluator, and the predictions of OpenOOD's networks in our evaluation."""

import torch
from torch.utils.data import DataLoader

import regmixup as rm

MEAN, STD = (0.3,), (0.38,)


@torch.no_grad()
def predictions_of(net, loader, name):
    """Return Predictions of any network with OpenOOD's interface for one of its loaders, with features and head."""
    batches = [(*net(batch["data"], return_feature=True), batch["label"]) for batch in loader]
    logits, features, labels = (torch.cat(column).cpu() for column in zip(*batches, strict=True))
    weight, bias = map(torch.from_numpy, net.get_fc())
    return rm.Predictions(logits, labels, features, head_weight=weight, head_bias=bias, dataset=name)


def openood_loader(name):
    """Return a loader as OpenOOD's are: dicts of pixels that are already normalised, and labels."""
    data = rm.data.load(name)
    pixels = (data.images / 255 - MEAN[0]) / STD[0]
    rows = [{"data": x, "label": y} for x, y in zip(pixels, data.labels, strict=True)]
    return DataLoader(rows, batch_size=200)


def main():
    run = rm.train(rm.configure("digits", "regmixup", epochs=10))
    # Our run for OpenOOD: Evaluator(net, id_name=..., postprocessor_name="vim") takes this network.
    net = rm.networks.OpenOODNet(run.model(device="cpu"), normalized=(MEAN, STD)).eval()
    logits, features = net(next(iter(openood_loader("digits/test")))["data"], return_feature=True)
    print(f"logits {tuple(logits.shape)}, features {tuple(features.shape)}, fc {net.get_fc()[0].shape}")

    # OpenOOD's networks for us: `net` may be one of its own with a checkpoint, and the loaders those of its evaluator.
    found = {name: predictions_of(net, openood_loader(name), name) for name in ("digits/test", "photographs/test")}
    for row in rm.evaluate(found["digits/test"], ood=[found["photographs/test"]]):
        if row.metric in ("accuracy", "auroc"):
            print(f"{row.dataset:18} {row.score:16} {row.metric:9} {row.value:.4f}")


if __name__ == "__main__":
    main()
