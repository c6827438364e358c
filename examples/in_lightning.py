"""RegMixup in Lightning, with the exact AUROC of raw scores as a validation metric."""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

import regmixup as rm


class Classifier(lightning.LightningModule):
    """A network trained by any objective. generator: of the mixing; None is torch's global one."""

    def __init__(self, network, objective, *, lr=0.05, generator=None):
        super().__init__()
        self.network, self.objective, self.lr, self.generator = network, objective, lr, generator
        self.scores = [], []

    def forward(self, x):
        return self.network(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        out = self.objective(self, x, y, generator=self.generator)
        self.log("loss", out.loss)
        return out.loss

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        self.scores[dataloader_idx].append(rm.scores.dempster_shafer(self(batch[0])))

    def on_validation_epoch_end(self):
        known, other = map(torch.cat, self.scores)  # an AUROC is no mean over batches; of several processes, gather
        self.log("auroc", rm.metrics.auroc(known, other))
        self.scores = [], []

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)


def main():
    lightning.seed_everything(0, verbose=False)
    train, test, ood = (rm.data.load(name) for name in ("digits/train", "digits/test", "photographs/test"))
    loader = DataLoader(TensorDataset(train.images, train.labels), batch_size=64, shuffle=True, drop_last=True)
    loaders = [DataLoader(TensorDataset(data.images), batch_size=256) for data in (test, ood)]
    network = rm.networks.build("small", num_classes=10, in_channels=1, normalize=((0.3,), (0.38,)))
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(max_epochs=6, num_sanity_val_steps=0, enable_model_summary=False, **quiet)
    trainer.fit(Classifier(network, rm.RegMixup(alpha=20)), loader, loaders)
    print(f"loss {trainer.callback_metrics['loss']:.3f}, AUROC {trainer.callback_metrics['auroc']:.3f}")


if __name__ == "__main__":
    main()
