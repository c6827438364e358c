"""Our networks in OpenOOD's evaluator, and the predictions of OpenOOD's networks in our evaluation."""

import torch
from torch import nn
from torch.utils.data import DataLoader

import regmixup as rm

MEAN, STD = (0.3,), (0.38,)


class OpenOODNet(nn.Module):
    """A network with a linear head as OpenOOD calls it. mean, std: by which OpenOOD's preprocessor has normalised."""

    def __init__(self, network, mean, std):
        super().__init__()
        self.network, self.fc, self.feature_size = network, network.head, network.feature_dim
        self.mean, self.std = (torch.tensor(numbers).view(-1, 1, 1) for numbers in (mean, std))

    def forward(self, x, return_feature=False, return_feature_list=False):
        features = self.network.features(x * self.std.to(x) + self.mean.to(x))  # our networks normalise by themselves
        if return_feature_list:  # as ASH and SCALE ask for them
            return self.fc(features), [features[:, :, None, None]]
        return (self.fc(features), features) if return_feature else self.fc(features)

    def get_fc(self):
        return tuple(tensor.detach().cpu().numpy() for tensor in (self.fc.weight, self.fc.bias))

    def get_fc_layer(self):
        return self.fc


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


if __name__ == "__main__":
    run = rm.train(rm.configure("digits", "regmixup", epochs=10))
    # Our run for OpenOOD: Evaluator(net, id_name=..., postprocessor_name="vim") takes this network.
    net = OpenOODNet(run.model(device="cpu"), MEAN, STD).eval()
    # OpenOOD's networks for us: `net` may be one of its own with a checkpoint, and the loaders those of its evaluator.
    test, far = (predictions_of(net, openood_loader(name), name) for name in ("digits/test", "photographs/test"))
    for row in rm.evaluate(test, ood=[far]):
        if row.metric in ("accuracy", "auroc"):
            print(f"{row.dataset:18} {row.score:16} {row.metric:9} {row.value:.4f}")
