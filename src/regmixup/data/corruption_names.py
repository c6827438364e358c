"""The names of the common corruptions (Hendrycks and Dietterich, 2019). Importing this imports no torch.

Shift results are over the 15 of the benchmark; the 4 extra ones were made for validation and are no part of it.
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
