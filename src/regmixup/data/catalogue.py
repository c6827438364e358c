"""The catalogue: one record per dataset, and the only code that parses dataset names. Importing it imports no torch.

Names are FAMILY/SPLIT ("cifar10/test"), FAMILY/CORRUPTION/SEVERITY ("cifar10-c/fog/3"), `folder:PATH` (any tree with
one folder of images per class), `folder:PATH/train-90` (a part of such a tree, see `records.folder_record`) and
`path:NAME` (interpolations between pairs of another dataset's images).

To add a dataset, add its records here, what is published about it to `published`, and a reader to a module beside this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from regmixup import plugins
from regmixup.data.published import BY_HAND, CIFAR_C, CIFAR_C_EXTRA, CONTENT, FILE_SUMS, SOURCES
from regmixup.data.records import Dataset, Family, Role, SplitPart, folder_record
from regmixup.names import unknown
from regmixup.types import role_in_name

__all__ = [
    "BENCHMARK", "DATASETS", "EXTRA", "FAMILIES", "INTERPOLATED", "SEVERITIES", "Dataset", "Family", "Role",
    "SplitPart", "add_object", "find", "get", "line_of", "names", "register", "sets_of",
]  # fmt: skip

BENCHMARK = tuple(CIFAR_C)
"""The 15 common corruptions (Hendrycks and Dietterich, 2019) that results under shift are averaged over."""
EXTRA = tuple(CIFAR_C_EXTRA)
"""Four more, made for validation; not part of the benchmark."""
DIGIT_CORRUPTIONS = ("gaussian_noise", "impulse_noise", "gaussian_blur", "brightness", "contrast")
SEVERITIES = (1, 2, 3, 4, 5)
INTERPOLATED = 20_000
"""Images of a `path:` set: 1,000 pairs at 20 values of lambda."""


def _dataset(name: str, role: Role, reader: str, *, files: Iterable[str] = (), **fields: Any) -> Dataset:
    """Return a record with what `published` knows about it."""
    family, files = name.partition("/")[0], tuple(files)
    return Dataset(
        name=name,
        reader=reader,
        role=role,
        benchmark=fields.pop("benchmark", family),
        files=files,
        checksums={file: FILE_SUMS[file] for file in files if file in FILE_SUMS},
        content=CONTENT.get(name),
        sources=SOURCES.get(name, SOURCES.get(family, ())),
        by_hand=BY_HAND.get(family, ""),
        **fields,
    )


def _split(whole: Dataset, fractions: tuple[float, ...], *roles: tuple[str, Role], even: bool = True) -> list[Dataset]:
    """Return the parts of a stratified split. even: whether all classes have equally many images, all divisible."""
    return [
        replace(
            whole,
            name=f"{whole.family}/{split}",
            role=role,
            images=round(fraction * whole.images) if even and whole.images else None,
            content=None,
            part=SplitPart(whole.name, fractions, index),
        )
        for index, (fraction, (split, role)) in enumerate(zip(fractions, roles, strict=True))
    ]


def _train_parts(train: Dataset, *, even: bool = True) -> list[Dataset]:
    """Return the 90/10 split of a train set for choosing hyper-parameters."""
    return _split(train, (0.9, 0.1), ("train-90", "train"), ("val-10", "validation"), even=even)


def _corrupted(
    family: str, corruptions: tuple[str, ...], reader: str, folder: str = "", **fields: Any
) -> list[Dataset]:
    return [
        _dataset(
            f"{family}/{corruption}/{severity}",
            "shifted",
            reader,
            files=(f"{folder}/{corruption}.npy", f"{folder}/labels.npy") if folder else (),
            benchmark=family.removesuffix("-c"),
            corruption=corruption,
            severity=severity,
            **fields,
        )
        for corruption in corruptions
        for severity in SEVERITIES
    ]


def _digits() -> tuple[Family, ...]:
    shape: dict[str, Any] = {"side": 8, "num_classes": 10}
    sizes: dict[Role, int] = {"train": 450, "validation": 448, "test": 899}
    own = [
        _dataset(f"digits/{'val' if role == 'validation' else role}", role, "embedded:load_digits", images=n, **shape)
        for role, n in sizes.items()
    ]
    corrupted = _corrupted("digits-c", DIGIT_CORRUPTIONS, "embedded:load_corrupted_digits", images=899, **shape)
    mirrored = _dataset(
        "digits-mirrored/test", "ood", "embedded:load_mirrored_digits", benchmark="digits", images=452, **shape
    )
    photographs = _dataset("photographs/test", "ood", "embedded:load_photographs", side=8, images=520, num_classes=2)
    return (
        Family("scikit-learn's handwritten digits, 8x8 grey; stratified 25/25/50", tuple(own)),
        Family("digits/test under 5 corruptions at 5 severities", tuple(corrupted)),
        Family("near OOD: digits/test mirrored, for the classes where that is no digit", (mirrored,)),
        Family("far OOD: 8x8 patches of scikit-learn's photographs", (photographs,)),
    )


def _cifar() -> tuple[Family, ...]:
    def own(num_classes: int, folder: str, meta: str, train: Iterable[str], test: str) -> Family:
        def split(role: Role, images: int, *names: str) -> Dataset:
            files = [f"{folder}/{name}" for name in (meta, *names)]
            shape = {"side": 32, "num_classes": num_classes, "images": images}
            return _dataset(f"cifar{num_classes}/{role}", role, "cifar:load_cifar", files=files, **shape)

        whole = split("train", 50_000, *train)
        title = f"CIFAR-{num_classes}, 32x32, 50,000 train and 10,000 test images"
        return Family(title, (whole, split("test", 10_000, test), *_train_parts(whole)))

    def corrupted(num_classes: int) -> Family:
        family, folder = f"cifar{num_classes}-c", f"CIFAR-{num_classes}-C"
        shape = {"side": 32, "num_classes": num_classes, "images": 10_000}
        sets = _corrupted(family, BENCHMARK + EXTRA, "cifar:load_cifar_c", folder, **shape)
        return Family(f"{folder}: 15 benchmark and 4 extra corruptions at 5 severities", tuple(sets))

    def new(family: str, title: str, *files: str) -> Family:
        shape = {"side": 32, "num_classes": 10, "images": 2_000}
        tests = _dataset(
            f"{family}/test", "shifted", "cifar:load_new_test_set", files=files, benchmark="cifar10", **shape
        )
        return Family(f"{title}, 2,000 new test images for CIFAR-10", (tests,))

    return (
        own(10, "cifar-10-batches-py", "batches.meta", [f"data_batch_{n}" for n in range(1, 6)], "test_batch"),
        own(100, "cifar-100-python", "meta", ["train"], "test"),
        new("cifar10.1", "CIFAR-10.1 v6", "cifar10.1_v6_data.npy", "cifar10.1_v6_labels.npy"),
        new("cifar10.2", "CIFAR-10.2", "cifar102_test.npz"),
        corrupted(10),
        corrupted(100),
    )


def _svhn() -> Family:
    def own(split: str, role: Role, images: int, **fields: Any) -> Dataset:
        files = (f"{split}_32x32.mat",)
        shape = {"side": 32, "num_classes": 10, "images": images}
        return _dataset(f"svhn/{split}", role, "mat5:load_svhn", files=files, **shape, **fields)

    train, test = own("train", "train", 73_257), own("test", "test", 26_032)
    extra = own("extra", "train", 531_131, optional=True)
    title = "street view house numbers, cropped digits, 32x32"
    return Family(title, (train, test, extra, *_train_parts(train, even=False)))


def _tiny_imagenet(family: str, side: int, title: str, *, parts: bool) -> Family:
    folder, reader, shape = "tiny-imagenet-200", "tiny_imagenet:load_tiny_imagenet", {"side": side, "num_classes": 200}
    wnids = f"{folder}/wnids.txt"
    listed = (wnids, f"{folder}/val/val_annotations.txt", f"{folder}/val/images/")
    train = _dataset(f"{family}/train", "train", reader, files=(wnids, f"{folder}/train/"), images=100_000, **shape)
    val = _dataset(f"{family}/val", "validation", reader, files=listed, images=10_000, **shape)
    return Family(title, (train, val, *(_train_parts(train) if parts else ())))


def _imagenet() -> tuple[Family, ...]:
    reader, classes = "imagenet:load_imagenet", {"num_classes": 1000}
    train = _dataset("imagenet/train", "train", reader, files=("imagenet/train/",), images=1_281_167, **classes)
    # The paper keeps a tenth of the validation set apart for tuning; the rest, and so the whole, is a test set.
    val = _dataset("imagenet/val", "test", reader, files=("imagenet/val/",), images=50_000, **classes)
    parts = _split(val, (0.1, 0.9), ("val-tune", "validation"), ("val-test", "test"))
    whole = Family("ImageNet-1K, as files; a tenth of val kept apart for tuning", (train, val, *parts))

    def variant(name: str, folder: str, images: int, num_classes: int, title: str, role: Role = "shifted") -> Family:
        fields = {"benchmark": "imagenet", "images": images, "num_classes": num_classes}
        return Family(title, (_dataset(f"{name}/test", role, "imagenet:load_variant", files=(folder,), **fields),))

    matched = "imagenetv2-matched-frequency-format-val/"
    out = "ImageNet-O: out-of-distribution images for 200 classes"
    return (
        whole,
        variant("imagenet-a", "imagenet-a/", 7_500, 200, "ImageNet-A: natural adversarial examples, 200 classes"),
        variant("imagenet-r", "imagenet-r/", 30_000, 200, "ImageNet-R: renditions, 200 classes"),
        variant("imagenet-o", "imagenet-o/", 2_000, 200, out, role="ood"),
        variant("imagenet-v2", matched, 10_000, 1000, "ImageNet-V2, matched frequency: 10,000 new images"),
        variant("imagenet-sketch", "sketch/", 50_889, 1000, "ImageNet-Sketch: drawings of the 1000 classes"),
    )


_LISTED = (
    *_digits(),
    *_cifar(),
    _svhn(),
    _tiny_imagenet("tiny-imagenet", 32, "Tiny-ImageNet-200, resized from 64x64 to 32x32", parts=True),
    _tiny_imagenet("tiny-imagenet-64", 64, "Tiny-ImageNet-200 at its own size, 64x64", parts=False),
    *_imagenet(),
)
FAMILIES: dict[str, Family] = {
    **{family.datasets[0].family: family for family in _LISTED},
    "folder": Family("folder:PATH, any tree with one folder of images per class; folder:PATH/train-90, its parts", ()),
}
_BUILT_IN = frozenset(FAMILIES)
DATASETS: dict[str, Dataset] = {dataset.name: dataset for family in FAMILIES.values() for dataset in family.datasets}


def names() -> list[str]:
    """Return every dataset name but `folder:PATH`; each that is held in memory may also be asked for as `path:NAME`."""
    return list(DATASETS)


def get(name: str) -> Dataset | None:
    """Return the record of a dataset, or None where the name is not one of ours. Reads nothing.

    >>> get("cifar10-c/fog/3").role, get("vitamin-c/val")
    ('shifted', None)
    """
    if name.startswith("folder:") and name != "folder:":
        return folder_record(name)
    source = DATASETS.get(name.removeprefix("path:"))
    if source is None or not name.startswith("path:"):
        return source
    return replace(source, name=name, role="shifted", images=INTERPOLATED, content=None)


def find(name: str, what: str = "dataset") -> Dataset:
    """Return the record of a dataset; an unknown name is an error that calls it `what`. Reads nothing."""
    if not isinstance(name, str):
        raise ValueError(f"a dataset must be named by a string, such as digits/train or folder:PATH, got {name!r}")
    if dataset := get(name):
        return dataset
    plugins.load()  # one of them may register it
    if dataset := get(name):
        return dataset
    family = FAMILIES.get(name.removeprefix("path:").partition("/")[0].removesuffix(":"))
    if family is None:
        summary = f"the families {', '.join(FAMILIES)}; see `regmixup list datasets`"
        raise unknown(what, name, DATASETS, summary=summary)
    # The severities of a corruption are one entry, so that the list can be read.
    entries = {f"{line_of(d)}/1-5" if d.corruption else d.name for d in family.datasets}
    raise unknown(what, name, family.names, summary=", ".join(sorted(entries)) or family.description)


def register(
    name: str,
    loader: Callable[..., Any],
    *,
    role: Role | None = None,
    benchmark: str = "",
    on_disk: bool = False,
    side: int | None = None,
    num_classes: int | None = None,
    description: str = "",
    version: str = "",
) -> None:
    """Make a dataset of your own known by name, FAMILY/SPLIT, wherever names are taken. See `regmixup.plugins`.

    loader: returns an `ImageSet`, a torch dataset of (image, label) pairs that fits in memory, or, with on_disk=True, a
        `FolderSet`. It is given the data root where it has a parameter `root` or one without a default.
    role: train, validation, test, shifted or ood; default, what the split says: train, val or test. benchmark: the
        family whose classes it shows, for a shifted or near-OOD set; default, its own.
    side: height and width of the images; where it is given, studies find sets that do not fit before they train.

    FAMILY/train brings its parts FAMILY/train-90 and FAMILY/val-10, unless datasets of these names are registered.
    """
    if not callable(loader):
        raise ValueError(f"loader of dataset {name} must be a function that returns the images, got {loader!r}")
    family, _, split = str(name).partition("/")
    if family in _BUILT_IN:
        listed = ", ".join(sorted(_BUILT_IN))
        raise ValueError(f"name of a dataset must not begin with a built-in family, got {name!r}; built in: {listed}")
    plugins.record("dataset", name, loader, (), version=version)
    own = Dataset(
        name=name,
        loader=loader,
        role=role or role_in_name(name) or None,
        benchmark=benchmark or family,
        on_disk=on_disk,
        side=side,
        num_classes=num_classes,
    )
    about = description or f"registered by {plugins.REGISTERED['dataset', name].module}"
    before = FAMILIES.get(family, Family(about, ()))
    others = {dataset.name: dataset for dataset in before.datasets}
    parts = _train_parts(own, even=False) if split == "train" else []
    added = {own.name: own} | {part.name: part for part in parts if part.name not in others}
    FAMILIES[family] = Family(before.description, tuple((others | added).values()))
    DATASETS.update(added)


def add_object(name: str, images: Any, role: Role) -> None:
    """Make images that were given as an object known by a name that `plugins.record_object` has recorded.

    All objects are of one benchmark: to a model of one, another is a set of the same classes, in the role given.
    """
    own = Dataset(
        name=name,
        loader=lambda: images,
        role=role,
        benchmark="objects",
        on_disk=images.shape is None,
        side=None if images.shape is None else images.shape[1],
        num_classes=len(images.classes),
    )
    FAMILIES[own.family] = Family("given as an object", (own,))
    DATASETS[name] = own


def line_of(dataset: Dataset) -> str:
    """Return the name under which a dataset is listed: its own, or that of its corruption at all severities."""
    return f"{dataset.family}/{dataset.corruption}" if dataset.corruption else dataset.name


def sets_of(family: str) -> list[Dataset]:
    """Return a family's datasets, but for CIFAR-C's 4 corruptions beyond the benchmark; [] for all other names."""
    datasets = FAMILIES[family].datasets if family in FAMILIES else ()
    corruptions = {dataset.corruption for dataset in datasets}
    left_out = EXTRA if corruptions.issuperset(BENCHMARK) else ()
    return [dataset for dataset in datasets if dataset.corruption not in left_out]
