"""Strength of each corruption at severities 1 to 5, for 8x8 images (our choice: ImageNet-C's, blur scaled down)."""

CONSTANTS: dict[str, tuple[float, ...]] = {
    "gaussian_noise": (0.08, 0.12, 0.18, 0.26, 0.38),
    "impulse_noise": (0.03, 0.06, 0.09, 0.17, 0.27),
    "gaussian_blur": (0.4, 0.5, 0.6, 0.8, 1.0),
    "brightness": (0.1, 0.2, 0.3, 0.4, 0.5),
    "contrast": (0.5, 0.4, 0.3, 0.2, 0.1),
}
