"""Predictions files: exact round trips, foreign formats, and files that are damaged or hostile."""

import json
import os
import pickle
import random
import re

import numpy as np
import pytest
import torch

from regmixup.predictions.store import TENSORS, file_name, load, save
from regmixup.types import Predictions

LOGITS = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 2, 1, 0])


def full():
    """Predictions with every field set."""
    generator = torch.Generator().manual_seed(1)
    return Predictions(
        logits=LOGITS,
        labels=LABELS,
        features=torch.randn(6, 5, generator=generator),
        probs=LOGITS.softmax(dim=1),
        logit_variance=torch.rand(6, 3, generator=generator),
        member_logits=torch.randn(4, 6, 3, generator=generator),
        head_weight=torch.randn(3, 5, generator=generator),
        head_bias=torch.randn(3, generator=generator),
        class_count=torch.tensor([2, 2, 2]),
        class_mean=torch.randn(3, 5, generator=generator),
        class_scatter=torch.randn(15, generator=generator),
        dataset="toy/test",
        info={"run": "abc", "text": 'größer, "quoted"\nand more'},
    )


def same(left, right):
    if left is None or right is None:
        return left is right
    return left.dtype == right.dtype and torch.equal(left, right)


class TestRoundTrip:
    def test_every_field_comes_back_bit_for_bit(self, tmp_path):
        save(full(), tmp_path / "p.safetensors")
        loaded = load(tmp_path / "p.safetensors")
        for name in TENSORS:
            assert same(getattr(loaded, name), getattr(full(), name)), name
        assert loaded.dataset == "toy/test"
        assert loaded.info == full().info

    def test_tensors_with_strides_come_back(self, tmp_path):
        columns, pairs = torch.randn(6, 6), torch.arange(12).reshape(6, 2) % 3
        for logits, labels in ((columns[:, ::2], pairs[:, 0]), (columns.T[:, :3], torch.tensor(1).expand(6))):
            save(Predictions(logits, labels), tmp_path / "p.safetensors")
            loaded = load(tmp_path / "p.safetensors")
            assert same(loaded.logits, logits)
            assert same(loaded.labels, labels)

    @pytest.mark.parametrize(("dataset", "role"), [("mine", "validation"), ("toy/test", "ood"), ("mine", "")])
    def test_the_role_of_the_set_comes_back(self, tmp_path, dataset, role):
        save(Predictions(LOGITS, LABELS, dataset=dataset, role=role), tmp_path / "p.safetensors")
        loaded = load(tmp_path / "p.safetensors")
        assert (loaded.dataset, loaded.role, loaded.info) == (dataset, role, {})
        assert [name for name in TENSORS if getattr(loaded, name) is not None] == ["logits", "labels"]

    def test_an_ensemble_of_one_whose_member_is_the_logits_is_saved(self, tmp_path):
        save(Predictions(LOGITS, LABELS, member_logits=LOGITS[None]), tmp_path / "p.safetensors")
        assert same(load(tmp_path / "p.safetensors").member_logits, LOGITS[None])


@pytest.mark.parametrize(
    ("dataset", "like"), [("a/b", "a__b"), ("folder:/a", "folder--/a"), ("x" * 300 + "/a", "y" * 300 + "/a")]
)
def test_every_dataset_has_a_file_of_its_own(tmp_path, dataset, like):
    assert file_name(dataset) != file_name(like)
    for name in (dataset, like):
        save(Predictions(LOGITS, LABELS, dataset=name), tmp_path / file_name(name))
        assert load(tmp_path / file_name(name)).dataset == name


class TestForeignFormats:
    def test_npz_with_any_field(self, tmp_path):
        np.savez(tmp_path / "mine.npz", **{name: getattr(full(), name).numpy() for name in TENSORS})
        loaded = load(tmp_path / "mine.npz")
        for name in TENSORS:
            assert same(getattr(loaded, name), getattr(full(), name)), name
        assert loaded.dataset == "mine"

    def test_a_file_that_names_no_dataset_is_of_that_whose_file_it_could_be(self, tmp_path):
        path = tmp_path / file_name("toy-c/fog/3").replace(".safetensors", ".npy")
        np.save(path, LOGITS.numpy())
        assert load(path).dataset == "toy-c/fog/3"

    @pytest.mark.parametrize("dtype", ["uint64", "float32"])
    def test_labels_of_any_integer_type_become_int64(self, tmp_path, dtype):
        np.savez(tmp_path / "p.npz", logits=LOGITS.numpy(), labels=LABELS.numpy().astype(dtype))
        assert same(load(tmp_path / "p.npz").labels, LABELS)


class TestRefusals:
    """Every refusal is a ValueError that names the file."""

    def refused(self, path, message):
        with pytest.raises(ValueError, match=message) as error:
            load(path)
        assert str(path) in str(error.value)

    @pytest.mark.parametrize("length", [0, 4, 1000, -1])
    def test_a_truncated_file(self, tmp_path, length):
        path = tmp_path / "p.safetensors"
        save(full(), path)
        path.write_bytes(path.read_bytes()[:length])
        self.refused(path, "cannot read predictions from")

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("name", ["p.safetensors", "p.npz", "p.npy", "p.csv", "p.pt"])
    @pytest.mark.parametrize("count", [100, pytest.param(4000, marks=pytest.mark.soak)])
    def test_a_damaged_file_reads_or_is_refused_and_nothing_else(self, tmp_path, name, count):
        path, rng = tmp_path / name, random.Random(0)
        if name == "p.safetensors":
            save(full(), path)
        elif name == "p.npz":
            np.savez_compressed(path, logits=LOGITS.numpy(), labels=LABELS.numpy())
        elif name == "p.npy":
            np.save(path, LOGITS.numpy())
        elif name == "p.pt":
            torch.save({"logits": LOGITS, "labels": LABELS}, path)
        else:
            path.write_text("label,cat,dog\n1,0.5,-2e3\n0,3,4\n")
        data, refused, escaped = path.read_bytes(), 0, set()
        for _ in range(count):
            damaged = bytearray(data)
            for _ in range(rng.randint(1, 3)):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            path.write_bytes(damaged)
            try:
                load(path)
            except ValueError as error:
                refused += str(path) in str(error)
            except Exception as error:
                escaped.add(f"{type(error).__name__}: {error}")
        assert not escaped
        assert refused > count / 8

    def test_a_file_that_is_missing_a_folder_or_of_an_unknown_format(self, tmp_path):
        for suffix in (".safetensors", ".npz", ".npy", ".pt", ".csv", ".tsv"):
            self.refused(tmp_path / f"nowhere{suffix}", "cannot read predictions from .*: .*No such file or directory")
        self.refused(tmp_path, "cannot read predictions from .*: name a file; those of a run folder")
        self.refused(tmp_path / "p.npzz", "unknown predictions format .* did you mean '.npz'")

    @pytest.mark.parametrize("content", [b"", b"not what the name says"])
    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("p.npz", "it is no .npz file, or a damaged one"),
            ("p.pt", "it holds other things than a dictionary of tensors, or is empty or damaged"),
        ],
    )
    def test_nobody_is_told_to_trust_a_damaged_file(self, tmp_path, name, message, content):
        (tmp_path / name).write_bytes(content)
        self.refused(tmp_path / name, f": {message}$")

    @pytest.mark.parametrize("bad", [0.5, np.nan, 1e30])
    def test_labels_that_are_no_integers(self, tmp_path, bad):
        labels = LABELS.numpy().astype(float)
        labels[2] = bad
        np.savez(tmp_path / "p.npz", logits=LOGITS.numpy(), labels=labels)
        self.refused(tmp_path / "p.npz", re.escape(f"labels must be integers, got {bad} in row 2 (counted from 0)"))

    @pytest.mark.parametrize(
        ("arrays", "message"),
        [
            ({"labels": LABELS}, r"must hold logits or probs of shape .*, got labels \(6,\)"),
            ({"logits": LOGITS, "label": LABELS}, "unknown key in .* 'label': did you mean 'labels'"),
            ({"logits": LOGITS, "labels": np.eye(3)[LABELS]}, r"labels must be .* got torch.float64 of shape \(6, 3\)"),
            ({"logits": LOGITS, "labels": LABELS > 0}, r"labels must be .*, got torch.bool of shape \(6,\)"),
            ({"logits": LOGITS, "labels": LABELS - 2}, r"labels must lie in \[0, 3\) \(-1: unknown\), got -2 to 0"),
            ({"logits": LOGITS, "probs": LOGITS.sigmoid()}, "probs must be >= 0 and sum to 1 in every row, got values"),
            ({"logits": np.zeros((2, 3), dtype=int)}, "logits must be a floating-point .* got torch.int64"),
            ({"logits": np.float64(3)}, r"must hold logits or probs of shape .*, got logits \(\)"),
            ({"probs": np.zeros((0, 3))}, r"must hold logits or probs of shape .*, got probs \(0, 3\)"),
            ({"logits": LOGITS, "labels": ["cat"] * 6}, r"labels must be numbers, or among .* \(none\), got 'cat'"),
            (
                {"logits": LOGITS, "features": ["cat"] * 6},
                "features must be a tensor or an array of numbers, got array",
            ),
        ],
    )
    def test_arrays_that_are_no_predictions(self, tmp_path, arrays, message):
        np.savez(tmp_path / "p.npz", **arrays)
        self.refused(tmp_path / "p.npz", message)


class Payload:
    """Unpickling this makes a folder."""

    def __init__(self, target):
        self.target = str(target)

    def __reduce__(self):
        return os.mkdir, (self.target,)


class TestHostileFiles:
    """A file that would run code when unpickled is refused, and the code does not run."""

    def payload(self, tmp_path):
        return np.array([Payload(tmp_path / "executed")], dtype=object)

    def refused(self, tmp_path, path):
        with pytest.raises(ValueError, match=f"cannot read predictions from {path}"):
            load(path)
        assert not (tmp_path / "executed").exists()

    def test_the_payload_is_live(self, tmp_path):
        np.save(tmp_path / "p.npy", self.payload(tmp_path), allow_pickle=True)
        np.load(tmp_path / "p.npy", allow_pickle=True)
        assert (tmp_path / "executed").is_dir()

    def test_an_object_array(self, tmp_path):
        np.save(tmp_path / "p.npy", self.payload(tmp_path), allow_pickle=True)
        self.refused(tmp_path, tmp_path / "p.npy")
        np.savez(tmp_path / "p.npz", allow_pickle=True, logits=LOGITS.numpy(), anything=self.payload(tmp_path))
        self.refused(tmp_path, tmp_path / "p.npz")

    @pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors", ".pt"])
    def test_a_bare_pickle(self, tmp_path, suffix):
        (tmp_path / f"p{suffix}").write_bytes(pickle.dumps(Payload(tmp_path / "executed")))
        self.refused(tmp_path, tmp_path / f"p{suffix}")

    @pytest.mark.parametrize("zipped", [True, False])
    def test_a_torch_checkpoint(self, tmp_path, zipped):
        content = {"logits": Payload(tmp_path / "executed")}
        torch.save(content, tmp_path / "p.pt", _use_new_zipfile_serialization=zipped)
        self.refused(tmp_path, tmp_path / "p.pt")

    @pytest.mark.parametrize("length", [None, 2**62])
    def test_a_header_that_claims_more_than_the_file_holds(self, tmp_path, length):
        claim = {"logits": {"dtype": "F32", "shape": [10**9, 10], "data_offsets": [0, 4 * 10**10]}}
        header = json.dumps(claim).encode()
        (tmp_path / "p.safetensors").write_bytes((length or len(header)).to_bytes(8, "little") + header)
        self.refused(tmp_path, tmp_path / "p.safetensors")


def test_only_its_own_ending_is_written(tmp_path):
    with pytest.raises(ValueError, match=r"path must end in \.safetensors, the format it writes, got .*p\.npz"):
        save(Predictions(LOGITS, LABELS), tmp_path / "p.npz")
