"""The names of the corruptions. Importing this imports no torch.

`BENCHMARK`: the 15 corruptions of CIFAR-10-C, CIFAR-100-C and ImageNet-C (Hendrycks and Dietterich, 2019), in the order
of that paper. Tables average over these alone. `EXTRA`: the 4 that the same authors set aside for validation.
"""

from __future__ import annotations

BENCHMARK = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
)
EXTRA = ("gaussian_blur", "saturate", "spatter", "speckle_noise")
SEVERITIES = (1, 2, 3, 4, 5)
