"""Slow, obvious twins of `regmixup.data.corruptions`: one image at a time, in NumPy, SciPy, PIL and matplotlib.

`TWINS[name](image, constants, random)` takes a uint8 (H, W, 3) array and returns one. `random` hands out the random
numbers in the order in which the package draws them: a `Fresh` one from NumPy, or a `Replay` of the package's own.
"""

import io
import math

import numpy as np
import torch
from matplotlib.colors import hsv_to_rgb, rgb_to_hsv
from PIL import Image
from scipy import ndimage

from regmixup.data.catalogue import BENCHMARK, EXTRA
from regmixup.data.corruptions.parts import normal, uniform
from regmixup.data.corruptions.weather import SIDE, textures


class Fresh:
    """Random numbers from NumPy."""

    def __init__(self, seed):
        self.source = np.random.default_rng(seed)

    def normal(self, *shape):
        return self.source.standard_normal(shape)

    def uniform(self, *shape):
        return self.source.random(shape)

    def integers(self, low, high, *shape):
        return self.source.integers(low, high, shape)


class Replay:
    """Draws of the package for a batch of `count` images from a seed; `image(i)` starts reading those of image i."""

    def __init__(self, seed, count):
        self.generator = torch.Generator().manual_seed(seed)
        self.count, self.drawn, self.index, self.position = count, [], 0, 0

    def image(self, index):
        self.index, self.position = index, 0
        return self

    def _next(self, draw):
        if self.position == len(self.drawn):
            self.drawn.append(draw().numpy().astype(np.float64))
        self.position += 1
        return self.drawn[self.position - 1][self.index]

    def normal(self, *shape):
        return self._next(lambda: normal((self.count, *shape), torch.device("cpu"), self.generator))

    def uniform(self, *shape):
        return self._next(lambda: uniform((self.count, *shape), torch.device("cpu"), self.generator))

    def integers(self, low, high, *shape):
        drawn = self._next(lambda: torch.randint(low, high, (self.count, *shape), generator=self.generator))
        return drawn.astype(int)


def cut(x):
    """[0, 1] to uint8 by dropping the fraction."""
    return np.uint8(np.clip(x, 0, 1) * 255)


def last(planes):
    """(3, H, W) to (H, W, 3)."""
    return np.moveaxis(planes, 0, -1)


def smooth(x, sigma, **options):
    return ndimage.gaussian_filter(x, (sigma, sigma, *(0,) * (x.ndim - 2)), **{"mode": "nearest", **options})


def gaussian_noise(image, c, random):
    return cut(image / 255 + c[0] * last(random.normal(3, *image.shape[:2])))


def speckle_noise(image, c, random):
    return cut(image / 255 * (1 + c[0] * last(random.normal(3, *image.shape[:2]))))


def shot_noise(image, c, random):
    return cut(random.source.poisson(image / 255 * c[0]) / c[0])


def impulse_noise(image, c, random):
    u = last(random.uniform(3, *image.shape[:2]))
    return np.where(u < c[0] / 2, 0, np.where(u < c[0], 255, image)).astype(np.uint8)


def gaussian_blur(image, c, random):
    return cut(smooth(image / 255, c[0]))


def defocus_blur(image, c, random):
    radius, softness = c
    reach, rim = (8, 1) if radius <= 8 else (radius, 2)
    kernel = np.zeros((2 * reach + 1, 2 * reach + 1))
    for y in range(-reach, reach + 1):
        for x in range(-reach, reach + 1):
            kernel[y + reach, x + reach] = x * x + y * y <= radius * radius
    tap = [math.exp(-k * k / (2 * softness * softness)) for k in range(-rim, rim + 1)]
    kernel = ndimage.correlate(kernel / kernel.sum(), np.outer(tap, tap) / sum(tap) ** 2, mode="mirror")
    return cut(np.stack([ndimage.correlate(image[..., k] / 255, kernel, mode="mirror") for k in range(3)], axis=-1))


def glass_blur(image, c, random):
    sigma, d, passes = c
    x = cut(smooth(image / 255, sigma))
    height, width = x.shape[:2]
    for _ in range(passes):
        offset = random.integers(-d, d, 2, height - 2 * d, width - 2 * d)
        for h in range(height - d, d, -1):
            for w in range(width - d, d, -1):
                dy, dx = offset[:, h - d - 1, w - d - 1]
                x[h, w] = x[h + dy, w + dx]
    return cut(smooth(x / 255, sigma))


def trail(levels, angle, radius, sigma):
    """ImageMagick's motion blur: 16-bit arithmetic, cut to 8 bits."""
    height, width = levels.shape[:2]
    weights = [math.exp(-i * i / (2 * sigma * sigma)) for i in range(2 * radius + 1)]
    total = np.zeros(levels.shape)
    for i, weight in enumerate(weights):
        dx = math.ceil(i * math.cos(math.radians(angle)) - 0.5)
        dy = math.ceil(i * math.sin(math.radians(angle)) - 0.5)
        rows = [min(max(y + dy, 0), height - 1) for y in range(height)]
        columns = [min(max(x + dx, 0), width - 1) for x in range(width)]
        total += weight / sum(weights) * levels[rows][:, columns]
    return np.rint(total * 257) // 257


def motion_blur(image, c, random):
    return trail(image, random.uniform() * 90 - 45, *c).astype(np.uint8)


def zoomed(x, factor):
    side = x.shape[0]
    kept = math.ceil(side / factor)
    top = (side - kept) // 2
    big = ndimage.zoom(x[top : top + kept, top : top + kept], (factor, factor, 1), order=1)
    top = (len(big) - side) // 2
    return big[top : top + side, top : top + side]


def zoom_blur(image, c, random):
    x = image / 255
    factors = np.arange(1, *c)
    return cut((x + sum(zoomed(x, factor) for factor in factors)) / (len(factors) + 1))


def snow(image, c, random):
    mean, spread, zoom, threshold, radius, sigma, blend = c
    flakes = random.normal(1, *image.shape[:2])[0] * spread + mean
    angle = random.uniform() * 90 - 135
    flakes = zoomed(flakes[..., None], zoom)[..., 0]
    flakes = cut(np.where(flakes < threshold, 0, flakes))
    flakes = trail(flakes, angle, radius, sigma) / 255
    x = image / 255
    grey = x @ [0.299, 0.587, 0.114]
    x = blend * x + (1 - blend) * np.maximum(x, 1.5 * grey[..., None] + 0.5)
    return cut(x + (flakes + np.rot90(flakes, 2))[..., None])


def frost(image, c, random):
    keep, ice, step = c
    height, width = image.shape[:2]
    side = SIDE // step
    u = random.uniform(3)
    texture = textures()[int(u[0] * 5)].numpy()[:, step // 2 :: step, step // 2 :: step]
    rows = (int(u[1] * side) + np.arange(height)) % side
    columns = (int(u[2] * side) + np.arange(width)) % side
    return np.uint8(np.clip(keep * image + ice * last(texture[:, rows][:, :, columns]), 0, 255))


def plasma(u, decay):
    """Diamond-square, one point at a time, on a torus."""
    side = len(u)
    cloud = np.zeros((side, side))
    step, wibble = side, 100.0

    def point(y, x, neighbours):
        mean = sum(cloud[(y + dy) % side, (x + dx) % side] for dy, dx in neighbours) / 4
        cloud[y, x] = mean + wibble * (-wibble + 2 * wibble * u[y, x])

    while step >= 2:
        h = step // 2
        for y in range(h, side, step):
            for x in range(h, side, step):
                point(y, x, [(-h, -h), (-h, h), (h, -h), (h, h)])
        for y in range(0, side, h):
            for x in range(h if y % step == 0 else 0, side, step):
                point(y, x, [(-h, 0), (h, 0), (0, -h), (0, h)])
        step, wibble = h, wibble / decay
    cloud -= cloud.min()
    return cloud / cloud.max()


def fog(image, c, random):
    amount, decay = c
    height, width = image.shape[:2]
    side = 2 ** math.ceil(math.log2(max(height, width)))
    x = image / 255
    cloud = plasma(random.uniform(side, side), decay)[:height, :width, None]
    return cut((x + amount * cloud) * x.max() / (x.max() + amount))


def brightness(image, c, random):
    hsv = rgb_to_hsv(image / 255)
    hsv[..., 2] = np.clip(hsv[..., 2] + c[0], 0, 1)
    return cut(hsv_to_rgb(hsv))


def contrast(image, c, random):
    x = image / 255
    mean = x.mean(axis=(0, 1))
    return cut((x - mean) * c[0] + mean)


def saturate(image, c, random):
    hsv = rgb_to_hsv(image / 255)
    hsv[..., 1] = np.clip(hsv[..., 1] * c[0] + c[1], 0, 1)
    return cut(hsv_to_rgb(hsv))


def elastic_transform(image, c, random):
    strength, sigma, jitter = c
    height, width = image.shape[:2]
    m, s = np.array([width // 2, height // 2]), min(height, width) // 3
    before = np.array([m + s, [m[0] + s, m[1] - s], m - s], dtype=float)
    after = before + (random.uniform(3, 2) * 2 - 1) * jitter
    field = random.uniform(2, height, width) * 2 - 1
    # back [x', y', 1] = [x, y], solved from the three points
    back = np.linalg.solve(np.column_stack([after, np.ones(3)]), before)
    row, column = np.mgrid[:height, :width].astype(float)
    source = np.stack([column, row, np.ones_like(row)], axis=-1) @ back
    x = image / 255

    def sample(x, row, column, mode):
        return np.stack([ndimage.map_coordinates(x[..., k], [row, column], order=1, mode=mode) for k in range(3)], -1)

    x = sample(x, source[..., 1], source[..., 0], "mirror")
    if strength:
        dx, dy = (smooth(part, sigma, mode="reflect", truncate=3) * strength for part in field)
        x = sample(x, row + dy, column + dx, "reflect")
    return cut(x)


def pixelate(image, c, random):
    height, width = image.shape[:2]
    small = Image.fromarray(image).resize((int(width * c[0]), int(height * c[0])), Image.Resampling.BOX)
    return np.asarray(small.resize((width, height), Image.Resampling.BOX))


def jpeg_compression(image, c, random):
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=int(c[0]))
    return np.asarray(Image.open(file))


def canny(levels, low, high):
    """Canny's edges, one pixel at a time, with OpenCV's rules."""
    dx, dy = (ndimage.sobel(levels.astype(float), axis=axis, mode="nearest") for axis in (1, 0))
    size = np.pad(np.abs(dx) + np.abs(dy), 1)
    height, width = levels.shape
    candidate = np.zeros((height + 2, width + 2), dtype=bool)
    for y in range(height):
        for x in range(width):
            here, across, down = size[y + 1, x + 1], dx[y, x], dy[y, x]
            slope = abs(down) * 2**15
            if slope < abs(across) * 13573:
                first, second = size[y + 1, x], size[y + 1, x + 2]
                keep = here > first and here >= second
            elif slope > abs(across) * (13573 + 2**16):
                first, second = size[y, x + 1], size[y + 2, x + 1]
                keep = here > first and here >= second
            else:
                side = -1 if (across < 0) != (down < 0) else 1
                keep = here > size[y, x + 1 - side] and here > size[y + 2, x + 1 + side]
            candidate[y + 1, x + 1] = keep and here > low
    edge = candidate & (size > high)
    todo = list(zip(*np.nonzero(edge), strict=True))
    while todo:
        y, x = todo.pop()
        for b in range(y - 1, y + 2):
            for a in range(x - 1, x + 2):
                if candidate[b, a] and not edge[b, a]:
                    edge[b, a] = True
                    todo.append((b, a))
    return edge[1:-1, 1:-1]


def chamfer(edge, limit):
    """The 5x5 chamfer distance to the nearest edge, by relaxing every pixel until nothing changes."""
    height, width = edge.shape
    distance = np.pad(np.where(edge, 0.0, limit), 2, constant_values=limit)
    lengths = {(0, 1): 1.0, (1, 1): round(1.4 * 2**16) / 2**16, (1, 2): round(2.1969 * 2**16) / 2**16}
    steps = [(y, x) for y in range(-2, 3) for x in range(-2, 3) if tuple(sorted((abs(y), abs(x)))) in lengths]
    while True:
        nearer = distance.copy()
        for y, x in steps:
            moved = distance[2 + y : 2 + y + height, 2 + x : 2 + x + width] + lengths[tuple(sorted((abs(y), abs(x))))]
            nearer[2:-2, 2:-2] = np.minimum(nearer[2:-2, 2:-2], moved)
        if np.array_equal(nearer, distance):
            return distance[2:-2, 2:-2]
        distance = nearer


def equalize(levels):
    """OpenCV's histogram equalisation."""
    counts = np.bincount(levels.ravel(), minlength=256)
    first = int(levels.min())
    if counts[first] == levels.size:
        return levels
    table, total = np.zeros(256), 0
    for level in range(first + 1, 256):
        total += counts[level]
        table[level] = np.rint(np.float32(total) * np.float32(255 / (levels.size - counts[first])))
    return table[levels].astype(np.uint8)


def water(drops):
    """(H, W) whole levels -> shine in [0, 1]."""
    distance = chamfer(canny(drops, 50, 150), 20)
    smoothed = ndimage.correlate(distance, np.ones((3, 3)), mode="mirror") / 9
    height = equalize(smoothed.astype(np.uint8)).astype(float)
    slope = ndimage.correlate(height, np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]), mode="mirror").clip(0, 255)
    shine = drops * np.rint(ndimage.correlate(slope, np.ones((3, 3)), mode="mirror") / 9)
    return shine / shine.max() if shine.max() else shine


def spatter(image, c, random):
    mean, spread, sigma, threshold, strength, mud = c
    field = smooth(random.normal(1, *image.shape[:2])[0] * spread + mean, sigma)
    x = image / 255
    if mud:
        cover = smooth((field > threshold).astype(float), strength)
        cover = np.where(cover < 0.8, 0, cover)[..., None]
        return cut(x * (1 - cover) + cover * np.array([63, 42, 20]) / 255)
    drops = np.floor(np.where(field < threshold, 0, field) * 255).clip(0, 255)
    return cut(x + strength * water(drops)[..., None] * np.array([175, 238, 238]) / 255)


TWINS = {name: globals()[name] for name in (*BENCHMARK, *EXTRA)}
