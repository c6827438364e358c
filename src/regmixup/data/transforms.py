"""What happens to a decoded image file before it becomes a training or test image. Pillow images in and out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class TrainTransform:
    """The paper's ImageNet augmentation: random resized crop, flip, colour jitter.

    size: side of the square crop. scale and ratio: area and aspect of the crop relative to the image.
    interpolation: how the crop comes to its size; random: bilinear or bicubic, anew for every image, as in timm.
    jitter: strength of brightness, contrast and saturation changes; 0 for none.
    """

    size: int = 224
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    interpolation: Literal["bilinear", "random"] = "bilinear"
    flip: float = 0.5
    jitter: float = 0.4

    def build(self) -> Any:
        """The torchvision transform."""
        from torchvision.transforms import v2

        modes = [v2.InterpolationMode.BILINEAR]
        if self.interpolation == "random":
            modes.append(v2.InterpolationMode.BICUBIC)
        crops = [v2.RandomResizedCrop(self.size, self.scale, self.ratio, mode, antialias=True) for mode in modes]
        steps: list[Any] = [
            crops[0] if len(crops) == 1 else v2.RandomChoice(crops),
            v2.RandomHorizontalFlip(self.flip),
        ]
        if self.jitter:
            steps.append(v2.ColorJitter(self.jitter, self.jitter, self.jitter))
        return v2.Compose(steps)


@dataclass(frozen=True, kw_only=True)
class EvalTransform:
    """Resize the shorter side to `resize` (antialiased), then cut the central `size` square."""

    size: int = 224
    resize: int = 256
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"

    def build(self) -> Any:
        """The torchvision transform."""
        from torchvision.transforms import v2

        mode = v2.InterpolationMode(self.interpolation)
        return v2.Compose([v2.Resize(self.resize, mode, antialias=True), v2.CenterCrop(self.size)])
