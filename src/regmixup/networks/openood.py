"""The interface by which OpenOOD evaluates a network."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from regmixup.networks.contract import Classifier, Normalization, Normalize


class OpenOODNet(nn.Module):
    """A network with the interface that OpenOOD's evaluator, its postprocessors and its ReAct, ASH and SCALE nets call.

    network: a `Classifier` with a linear head, such as `run.model()`. normalized: the (mean, std) by which OpenOOD's
    preprocessor has normalised the pixels, which this undoes, as the network normalises by itself; None for a
    preprocessor that leaves pixels in [0, 1], or a network without `normalize`.

    Postprocessors that look into the layers of OpenOOD's own ResNets (MDS ensemble, Gram, KNN before version 1.5) need
    these.
    """

    def __init__(self, network: Classifier, *, normalized: Normalization | None = None) -> None:
        super().__init__()
        if not isinstance(network.head, nn.Linear):
            head = type(network.head).__name__
            raise ValueError(f"network must have a linear head, whose weights OpenOOD reads, got {head}")
        self.network = network
        self.normalized = Normalize(*normalized) if normalized is not None else None
        self.feature_size = network.feature_dim

    @property
    def fc(self) -> nn.Linear:
        assert isinstance(self.network.head, nn.Linear)
        return self.network.head

    def forward(self, x: Tensor, return_feature: bool = False, return_feature_list: bool = False) -> Any:
        """Return logits (N, K); with features (N, D) as a second value; or with a list that ends in (N, D, 1, 1)."""
        features = self._features(x)
        logits = self.fc(features)
        if return_feature:
            return logits, features
        return (logits, [features[:, :, None, None]]) if return_feature_list else logits

    def forward_threshold(self, x: Tensor, threshold: float) -> Tensor:
        """Return the logits of features clipped from above (ReAct)."""
        return self.fc(self._features(x).clip(max=threshold))

    def get_fc(self) -> tuple[Any, Any]:
        """Return the head's weight (K, D) and bias (K,) as arrays."""
        return self.fc.weight.detach().cpu().numpy(), self.fc.bias.detach().cpu().numpy()

    def get_fc_layer(self) -> nn.Linear:
        return self.fc

    def _features(self, x: Tensor) -> Tensor:
        return self.network.features(x if self.normalized is None else self.normalized.undo(x))
