"""Sharpness-aware minimisation: the step's gradient is taken where the loss is high nearby (Foret et al., 2021).

    sam = rm.sharpness.SAM(torch.optim.SGD(model.parameters(), lr=0.1), rho=0.05, model=model)

    def closure():
        loss = objective(model, x, y).loss
        loss.backward()
        return loss

    loss = sam.step(closure)

`regmixup train --sharpness sam` does the same inside the training step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from regmixup.config import check_number
from regmixup.mixing import check_generator

_EPSILON = 1e-12  # so that a gradient of 0 moves nothing


class SAM:
    """An optimizer that updates w by the gradient at w + e, e = rho d / |d|, the norm over all weights together.

    Of SAM, d is the gradient g at w. Of Friendly-SAM (Li et al., 2024), d = g - sigma m: what is left of g without m,
    the running mean of the gradients of earlier steps, m <- decay m + (1 - decay) g, which begins with the first g.
    Both gradients are of the same images, draw and dropout mask, so a step costs two forward and backward passes.

    model: its buffers (batch-norm statistics, power iterations) move with the pass at w alone; without a model they
    move twice a step. Weight decay, momentum and clipping are the optimizer's, and see the gradient at w + e.

    >>> w = torch.tensor([1.0], requires_grad=True)
    >>> sam = SAM(torch.optim.SGD([w], lr=0.1), rho=0.5)
    >>> def closure():
    ...     loss = (w**2).sum()
    ...     loss.backward()
    ...     return loss
    >>> sam.step(closure).item(), round(w.item(), 4)  # the gradient at 1.5 is 3
    (1.0, 0.7)
    """

    prefix = "sharpness."
    """Prefix of the names of its tensors in a checkpoint."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        rho: float = 0.05,
        *,
        friendly: bool = False,
        sigma: float = 1.0,
        decay: float = 0.9,
        model: nn.Module | None = None,
    ) -> None:
        if not hasattr(optimizer, "param_groups"):
            contract = "a torch optimizer, such as torch.optim.SGD(model.parameters(), lr=0.1)"
            raise ValueError(f"optimizer must be {contract}, got {type(optimizer).__name__}")
        check_number("rho", rho, above=0)
        check_number("sigma", sigma, least=0)
        check_number("decay", decay, least=0, below=1)
        self.optimizer, self.rho, self.friendly, self.sigma, self.decay = optimizer, rho, friendly, sigma, decay
        self.model = model
        self.means: dict[nn.Parameter, Tensor] = {}
        self.updates = torch.zeros((), dtype=torch.int64, device=self.parameters[0].device)

    @property
    def parameters(self) -> list[Any]:
        """Return all weights of the optimizer, those that were added to it later included."""
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def _means_of(self, parameters: list[Any]) -> list[Tensor]:
        """Return the running mean of each weight's gradient; that of a weight that is new here begins as zeros."""
        self.means |= {added: torch.zeros_like(added) for added in parameters if added not in self.means}
        return [self.means[parameter] for parameter in parameters]

    def step(self, closure: Callable[[], Tensor], generator: torch.Generator | None = None) -> Tensor:
        """Take a step and return the loss at w. closure: compute the loss, call `backward` and return the loss.

        It is called twice with torch's own generators in the same state. generator: the one that the closure passes to
        the objective, if any; it is rewound likewise, so that both passes have one draw.
        """
        check_generator(generator)
        devices = {parameter.device for parameter in self.parameters if parameter.device.type != "cpu"}
        self.optimizer.zero_grad(set_to_none=True)
        with torch.enable_grad():
            with ExitStack() as rewound:  # at its end, so that the second pass starts where the first has started
                kind = next(iter(devices)).type if devices else "cuda"
                rewound.enter_context(torch.random.fork_rng(devices, device_type=kind))
                if generator is not None:
                    rewound.callback(generator.set_state, generator.get_state())
                loss = closure()
            if not isinstance(loss, Tensor):
                raise ValueError(f"closure must return the loss, a tensor, got {type(loss).__name__}")
            with self.ascended():
                closure()
        self.optimizer.step()
        return loss.detach()

    @contextmanager
    def ascended(self) -> Iterator[None]:
        """Move the weights by e, drop the gradient, and after the passes inside put weights and buffers back."""
        learning = [parameter for parameter in self.parameters if parameter.grad is not None]
        if not learning:
            raise ValueError("closure must call backward on its loss, got no gradient of any weight of the optimizer")
        moved = [*learning, *(self.model.buffers() if self.model is not None else ())]
        with torch.no_grad():
            kept = [torch.empty_like(tensor) for tensor in moved]
            torch._foreach_copy_(kept, moved)  # a few kernels, where one by one they would be hundreds
            direction = self._direction(learning)
            norm = nn.utils.get_total_norm(direction)
            torch._foreach_add_(learning, torch._foreach_mul(direction, self.rho / (norm + _EPSILON)))
        self.optimizer.zero_grad(set_to_none=True)
        torch.clear_autocast_cache()  # under autocast around both passes, it would hold the weights from before
        try:
            yield
        finally:
            with torch.no_grad():
                torch._foreach_copy_(moved, kept)
            torch.clear_autocast_cache()

    def _direction(self, learning: list[nn.Parameter]) -> list[Tensor]:
        """Return d of the weights that have a gradient, and update the running mean, all on the device."""
        gradients = [parameter.grad for parameter in learning if parameter.grad is not None]
        if not self.friendly:
            return gradients
        means = self._means_of(learning)
        direction = list(torch._foreach_sub(gradients, torch._foreach_mul(means, self.sigma)))
        share = torch.where(self.updates == 0, 1.0, 1 - self.decay)
        torch._foreach_mul_(means, 1 - share)
        torch._foreach_add_(means, torch._foreach_mul(gradients, share))
        self.updates += 1
        return direction

    def state(self) -> dict[str, Tensor]:
        """Return all that a checkpoint must have: nothing, but for Friendly-SAM."""
        if not self.friendly:
            return {}
        means = {f"mean.{i}": mean for i, mean in enumerate(self._means_of(self.parameters))}
        return {"updates": self.updates, **means}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients, as the optimizer does; `step` does so itself."""
        self.optimizer.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """Return the optimizer's state and, of Friendly-SAM, the running mean, for `torch.save`."""
        return {"optimizer": self.optimizer.state_dict(), **self.state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` has returned."""
        tensors = self.state()
        if state.keys() != {"optimizer", *tensors}:
            names = ", ".join(["optimizer", *tensors])
            raise ValueError(f"state must have the entries {names}, got {', '.join(map(str, state))}")
        self.optimizer.load_state_dict(state["optimizer"])
        for name, tensor in tensors.items():
            tensor.copy_(state[name])


def has_dropout(model: nn.Module) -> bool:
    """Return whether a model drops elements or, as timm's DropPath, whole branches at random."""
    rates = ("p", "drop_prob")
    layers = [module for module in model.modules() if "Drop" in type(module).__name__]
    return any(getattr(layer, name, 0.0) > 0 for layer in layers for name in rates)
