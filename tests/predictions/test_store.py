"""Predictions files: exact round trips, foreign formats, and files that are damaged or hostile."""

import json
import os
import pickle
import random
import re
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from torch import nn

from regmixup import networks
from regmixup.predictions.forward import predict_images as predict
from regmixup.predictions.store import TENSORS, file_name, load, save
from regmixup.storage import save_tensors
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

    @pytest.mark.parametrize(("dataset", "role"), [("mine", "validation"), ("toy/test", "ood"), ("mine", "")])
    def test_the_role_of_the_set_comes_back(self, tmp_path, dataset, role):
        save(Predictions(LOGITS, LABELS, dataset=dataset, role=role), tmp_path / "p.safetensors")
        loaded = load(tmp_path / "p.safetensors")
        assert (loaded.dataset, loaded.role, loaded.info) == (dataset, role, {})

    def test_a_file_of_an_earlier_version_has_the_role_that_its_name_tells(self, tmp_path):
        tensors = {"logits": LOGITS, "labels": LABELS}
        save_tensors(tmp_path / "p.safetensors", tensors, {"dataset": "vitamin-c/val", "run": "abc"})
        loaded = load(tmp_path / "p.safetensors")
        assert (loaded.role, loaded.info) == ("validation", {"run": "abc"})

    def test_the_example_has_every_field(self):
        assert all(getattr(full(), f.name) is not None for f in fields(Predictions))

    def test_absent_fields_stay_absent(self, tmp_path):
        save(Predictions(LOGITS, LABELS), tmp_path / "p.safetensors")
        loaded = load(tmp_path / "p.safetensors")
        assert [name for name in TENSORS if getattr(loaded, name) is not None] == ["logits", "labels"]
        assert (loaded.dataset, loaded.info) == ("", {})

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
    def test_the_type_of_the_logits_is_kept(self, tmp_path, dtype):
        save(Predictions(LOGITS.to(dtype), LABELS), tmp_path / "p.safetensors")
        assert same(load(tmp_path / "p.safetensors").logits, LOGITS.to(dtype))

    def test_tensors_that_are_views_are_saved(self, tmp_path):
        save(Predictions(LOGITS.T.contiguous().T, LABELS[::1]), tmp_path / "p.safetensors")
        assert same(load(tmp_path / "p.safetensors").logits, LOGITS)

    def test_an_ensemble_of_one_whose_member_is_the_logits_is_saved(self, tmp_path):
        save(Predictions(LOGITS, LABELS, member_logits=LOGITS[None]), tmp_path / "p.safetensors")
        assert same(load(tmp_path / "p.safetensors").member_logits, LOGITS[None])

    def test_folders_are_made_and_an_old_file_is_replaced(self, tmp_path):
        path = tmp_path / "deep" / "er" / "p.safetensors"
        save(Predictions(LOGITS, LABELS), path)
        save(Predictions(LOGITS + 1, LABELS), path)
        assert same(load(path).logits, LOGITS + 1)
        assert [p.name for p in path.parent.iterdir()] == ["p.safetensors"]

    def test_a_path_may_be_a_string(self, tmp_path):
        save(full(), str(tmp_path / "p.safetensors"))
        assert len(load(str(tmp_path / "p.safetensors"))) == 6


class TestForeignFormats:
    def test_npz_with_any_field(self, tmp_path):
        np.savez(tmp_path / "mine.npz", **{name: getattr(full(), name).numpy() for name in TENSORS})
        loaded = load(tmp_path / "mine.npz")
        for name in TENSORS:
            assert same(getattr(loaded, name), getattr(full(), name)), name
        assert loaded.dataset == "mine"

    def test_probs_that_name_another_class_than_logits_are_told(self, tmp_path):
        """Those of Monte-Carlo samples may, but so do rows in another order."""
        arrays = {"logits": LOGITS.numpy(), "labels": LABELS.numpy()}
        for probs, others in ((LOGITS.softmax(dim=1), 0), (LOGITS.softmax(dim=1).flip(0), 4)):
            np.savez(tmp_path / "p.npz", **arrays, probs=probs.numpy())
            told = (
                f"probs name another class than logits in {others} of 6 rows: accuracy is of probs" if others else None
            )
            assert load(tmp_path / "p.npz").info.get("read_as") == told
        save(replace(full(), probs=probs), tmp_path / "ours.safetensors")
        assert load(tmp_path / "ours.safetensors").info == full().info

    def test_a_file_that_names_no_dataset_is_of_that_whose_file_it_could_be(self, tmp_path):
        path = tmp_path / file_name("toy-c/fog/3").replace(".safetensors", ".npy")
        np.save(path, LOGITS.numpy())
        assert load(path).dataset == "toy-c/fog/3"

    def test_npy_holds_logits_without_labels(self, tmp_path):
        np.save(tmp_path / "svhn.npy", LOGITS.numpy())
        loaded = load(tmp_path / "svhn.npy")
        assert same(loaded.logits, LOGITS)
        assert loaded.labels.tolist() == [-1] * 6
        assert loaded.dataset == "svhn"

    @pytest.mark.parametrize("label", ["label", "Label", "LABEL"])
    def test_csv_holds_a_column_of_labels_and_one_per_class(self, tmp_path, label):
        (tmp_path / "mine.csv").write_text(f"{label},cat,dog\n1,0.5,-2e3\n0,3,4\n")
        loaded = load(tmp_path / "mine.csv")
        assert loaded.labels.tolist() == [1, 0]
        assert loaded.labels.dtype == torch.int64
        assert loaded.logits.tolist() == [[0.5, -2000.0], [3.0, 4.0]]

    @pytest.mark.parametrize("header", ["cat,dog", "0,1", "cat, dog", "x1,2"])
    def test_csv_without_a_column_of_labels_holds_logits_alone(self, tmp_path, header):
        (tmp_path / "ood.csv").write_text(f"{header}\n0.5,-2\n3,4\n")
        loaded = load(tmp_path / "ood.csv")
        assert loaded.logits.tolist() == [[0.5, -2.0], [3.0, 4.0]]
        assert loaded.labels.tolist() == [-1, -1]

    def test_csv_with_one_sample(self, tmp_path):
        (tmp_path / "one.csv").write_text("label,cat,dog\n1,0.5,2\n")
        assert load(tmp_path / "one.csv").logits.shape == (1, 2)

    @pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint16", "uint32", "uint64", "float32"])
    def test_labels_of_any_integer_type_become_int64(self, tmp_path, dtype):
        np.savez(tmp_path / "p.npz", logits=LOGITS.numpy(), labels=LABELS.numpy().astype(dtype))
        assert same(load(tmp_path / "p.npz").labels, LABELS)


def write_safetensors(path, **tensors):
    """A file as another program might write it: no checks."""
    from safetensors.numpy import save_file

    save_file(tensors, path)


class TestRefusals:
    """Every refusal is a ValueError that names the file."""

    def refused(self, path, message):
        with pytest.raises(ValueError, match=message) as error:
            load(path)
        assert str(path) in str(error.value)

    @pytest.mark.parametrize("cut", ["nothing", "4 bytes", "the header", "half", "all but one byte"])
    def test_a_truncated_file(self, tmp_path, cut):
        path = tmp_path / "p.safetensors"
        save(full(), path)
        data = path.read_bytes()
        header = 8 + int.from_bytes(data[:8], "little")
        lengths = {"nothing": 0, "4 bytes": 4, "the header": header, "half": len(data) // 2}
        path.write_bytes(data[: lengths.get(cut, len(data) - 1)])
        self.refused(path, "cannot read predictions from")

    @pytest.mark.parametrize("suffix", [".npz", ".npy"])
    def test_a_truncated_numpy_file(self, tmp_path, suffix):
        path = tmp_path / f"p{suffix}"
        np.savez(path, logits=LOGITS.numpy()) if suffix == ".npz" else np.save(path, LOGITS.numpy())
        data = path.read_bytes()
        for length in (0, 4, len(data) // 2, len(data) - 1):
            path.write_bytes(data[:length])
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

    def test_a_missing_file(self, tmp_path):
        self.refused(tmp_path / "nowhere.safetensors", "cannot read predictions from")

    def test_a_folder(self, tmp_path):
        for name in ("p.safetensors", "erm-photos-s0"):
            (tmp_path / name).mkdir()
            self.refused(tmp_path / name, "cannot read predictions from .*: name a file; those of a run folder")

    def test_an_unknown_format(self, tmp_path):
        self.refused(tmp_path / "p.npzz", "unknown predictions format .* did you mean '.npz'")
        self.refused(
            tmp_path / "p.pkl",
            "unknown predictions format .* '.pkl'.* Available: .csv, .npy, .npz, .pt, .pth, .safetensors, .tsv",
        )

    def test_an_unknown_key(self, tmp_path):
        np.savez(tmp_path / "p.npz", logits=LOGITS.numpy(), label=LABELS.numpy())
        self.refused(tmp_path / "p.npz", "unknown key in .* 'label': did you mean 'labels'")

    def test_no_logits(self, tmp_path):
        np.savez(tmp_path / "p.npz", labels=LABELS.numpy())
        self.refused(tmp_path / "p.npz", "must hold logits or probs, found labels")
        np.savez(tmp_path / "q.npz")
        self.refused(tmp_path / "q.npz", "must hold logits or probs, found nothing")

    def test_no_samples(self, tmp_path):
        np.save(tmp_path / "p.npy", np.zeros((0, 3)))
        self.refused(tmp_path / "p.npy", r"is empty: logits have shape \(0, 3\)")

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_logits_that_are_not_finite(self, tmp_path, bad):
        logits = LOGITS.numpy().copy()
        logits[3, 1] = bad
        write_safetensors(tmp_path / "p.safetensors", logits=logits, labels=LABELS.numpy())
        self.refused(tmp_path / "p.safetensors", "logits must be finite, found .* in 1 of 6 rows, the first is row 3")

    @pytest.mark.parametrize(("bad", "found"), [(3, "0 to 3"), (-2, "-2 to 2")])
    def test_labels_out_of_range(self, tmp_path, bad, found):
        labels = LABELS.numpy().copy()
        labels[0] = bad
        labels[-1] = 0
        write_safetensors(tmp_path / "p.safetensors", logits=LOGITS.numpy(), labels=labels)
        self.refused(tmp_path / "p.safetensors", rf"labels must lie in \[0, 3\) \(-1: unknown\), got {found}")

    @pytest.mark.parametrize("bad", [0.5, np.inf, -np.inf, np.nan, 1e30])
    def test_labels_that_are_no_integers(self, tmp_path, bad):
        labels = LABELS.numpy().astype(float)
        labels[2] = bad
        np.savez(tmp_path / "p.npz", logits=LOGITS.numpy(), labels=labels)
        self.refused(tmp_path / "p.npz", re.escape(f"labels must be integers, got {bad} in row 2 (counted from 0)"))

    @pytest.mark.parametrize(
        ("labels", "got"),
        [
            (np.eye(3)[LABELS], r"torch.float64 of shape \(6, 3\)"),
            (LABELS.numpy() > 0, r"torch.bool of shape \(6,\)"),
        ],
        ids=["one-hot", "truth values"],
    )
    def test_labels_of_another_kind_are_reported_as_the_file_has_them(self, tmp_path, labels, got):
        np.savez(tmp_path / "p.npz", logits=LOGITS.numpy(), labels=labels)
        self.refused(tmp_path / "p.npz", rf"labels must be an integer \(N,\) tensor, got {got}")

    def test_probs_beside_logits_that_do_not_sum_to_one(self, tmp_path):
        """Sigmoids lie in [0, 1], and were measured without a word."""
        np.savez(tmp_path / "p.npz", logits=LOGITS.numpy(), probs=LOGITS.sigmoid().numpy())
        self.refused(
            tmp_path / "p.npz", r"probs must be >= 0 and sum to 1 in every row, got values from .* and sums from "
        )

    @pytest.mark.parametrize("name", ["labels", "features", "probs", "logit_variance"])
    def test_lengths_that_differ(self, tmp_path, name):
        tensors = {"logits": LOGITS.numpy(), "labels": LABELS.numpy(), name: getattr(full(), name)[:5].numpy()}
        write_safetensors(tmp_path / "p.safetensors", **tensors)
        self.refused(tmp_path / "p.safetensors", f"{name} must have 6 rows like logits, got .* of shape .5")

    def test_logits_that_are_integers_or_not_a_table(self, tmp_path):
        np.save(tmp_path / "p.npy", np.zeros((2, 3), dtype=np.int64))
        self.refused(tmp_path / "p.npy", "logits must be a floating-point .* got torch.int64")
        np.save(tmp_path / "q.npy", np.zeros((2, 3, 4)))
        self.refused(tmp_path / "q.npy", r"logits must be a floating-point .* shape \(2, 3, 4\)")
        np.save(tmp_path / "r.npy", np.float64(3.0))
        self.refused(tmp_path / "r.npy", "logits")

    def test_text_among_the_arrays(self, tmp_path):
        np.savez(tmp_path / "p.npz", logits=LOGITS.numpy(), dataset=np.array("cifar10"))
        self.refused(tmp_path / "p.npz", "unknown key in .* 'dataset'")
        for name in ("labels", "features"):
            np.savez(tmp_path / "p.npz", logits=LOGITS.numpy(), **{name: np.array(["cat"] * 6)})
            self.refused(tmp_path / "p.npz", f"{name} must be a tensor or an array of numbers, got ndarray of text")
        np.savez(tmp_path / "p.npz", logits=LOGITS.numpy(), labels=np.array(["cat"] * 6, dtype=object))
        self.refused(
            tmp_path / "p.npz", r"from .*: labels: an array of Python objects \(6,\) is never read: save it as"
        )

    def test_one_array_under_the_name_of_an_archive(self, tmp_path):
        np.save(tmp_path / "p.npy", LOGITS.numpy())
        (tmp_path / "p.npy").rename(tmp_path / "p.npz")
        self.refused(tmp_path / "p.npz", "cannot read predictions from")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "the first line must be a name per class, and 'label' for labels, got ''"),
            ("cat,,dog\n0,1,2\n", "the first line must be a name per class, and 'label' for labels, got 'cat,,dog'"),
            ("label\n0\n", "the first line must be a name per class, and 'label' for labels, got 'label'"),
            ("0.5,-2\n3,4\n", r"the first line must be a name per column, or say .*--labels first.*, got '0.5,-2'"),
            ("1e3,2\n3,4\n", "the first line must be a name per column, .*, got '1e3,2'"),
            ("label,cat,target\n0,1,2\n", "the first line must name one column of labels .* got 'label', 'target'"),
            ("cat|dog\n1|2\n", "must be names separated by commas, semicolons or tabs, got 'cat|dog'"),
            ("label,cat\n0,0.5\n1,1\n", r"logits of one column look like probabilities, .*: call them probs"),
            ("label,cat,dog\n0,1,2\ncow,3,4\n", "line 3 must be a label and 2 logits, .*, got 'cow,3,4'"),
            ("label,cat,dog\ncat,1,2\ncow,3,4\n", "line 3 must be .*, got 'cow,3,4'; labels are among cat, dog$"),
            ("label,cat,cat\ncat,1,2\n", "classes must have names of their own where labels are names"),
            (
                "label,probs_a,probs_b\n0,3,-4\n",
                "probs must be >= 0 and sum to 1 in every row, got values from -4 to 3",
            ),
            ("label;cat;dog\n0;1.5;2;3\n", "line 2 must be a label and 2 logits, separated by semicolons, got"),
            ("label,cat,dog\n0;1;2\n", "line 2 must be a label and 2 logits, separated by commas, got '0;1;2'"),
            ("label,cat,dog\n0,1,2\n\n0,,2\n", "line 4 must be a label and 2 logits, .*, got '0,,2'"),
            ("cat,dog\n1,2\n?,2\n", "line 3 must be 2 logits, separated by commas, got '.,2'"),
            ("label,cat,dog\n", "empty"),
            ("label,cat,dog\n0,x,1\n", "line 2 must be a label and 2 logits, .*, got '0,x,1'"),
            ("label,cat,dog\n0,1,2\n0,1\n", "line 3 must be a label and 2 logits, .*, got '0,1'"),
            ("label,cat,dog\n0,1,2,3\n", "line 2 must be a label and 2 logits, .*, got '0,1,2,3'"),
            ("label,cat,dog\n0,nan,1\n", "logits must be finite"),
            ("label,cat,dog\n2,0,1\n", r"labels must lie in \[0, 2\)"),
        ],
    )
    def test_csv_that_is_not_a_table_of_logits(self, tmp_path, text, message):
        (tmp_path / "p.csv").write_text(text)
        self.refused(tmp_path / "p.csv", message)


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
        with pytest.raises(ValueError, match="cannot read predictions from"):
            load(path)
        assert not (tmp_path / "executed").exists()

    def test_the_payload_is_live(self, tmp_path):
        np.save(tmp_path / "p.npy", self.payload(tmp_path), allow_pickle=True)
        np.load(tmp_path / "p.npy", allow_pickle=True)
        assert (tmp_path / "executed").is_dir()

    def test_an_object_array(self, tmp_path):
        np.save(tmp_path / "p.npy", self.payload(tmp_path), allow_pickle=True)
        self.refused(tmp_path, tmp_path / "p.npy")

    @pytest.mark.parametrize("key", ["logits", "labels", "anything"])
    def test_an_object_array_in_an_archive(self, tmp_path, key):
        arrays = {"logits": LOGITS.numpy(), key: self.payload(tmp_path)}
        np.savez(tmp_path / "p.npz", allow_pickle=True, **arrays)
        self.refused(tmp_path, tmp_path / "p.npz")

    @pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors", ".csv", ".pt"])
    def test_a_bare_pickle(self, tmp_path, suffix):
        (tmp_path / f"p{suffix}").write_bytes(pickle.dumps(Payload(tmp_path / "executed")))
        self.refused(tmp_path, tmp_path / f"p{suffix}")

    @pytest.mark.parametrize("suffix", [".npz", ".pt", ".pth"])
    @pytest.mark.parametrize("zipped", [True, False])
    def test_a_torch_checkpoint(self, tmp_path, suffix, zipped):
        path = tmp_path / f"p{suffix}"
        torch.save({"logits": Payload(tmp_path / "executed")}, path, _use_new_zipfile_serialization=zipped)
        with pytest.raises(ValueError, match=str(path)):
            load(path)
        assert not (tmp_path / "executed").exists()

    def test_a_header_that_claims_more_than_the_file_holds(self, tmp_path):
        header = json.dumps(
            {"logits": {"dtype": "F32", "shape": [10**9, 10], "data_offsets": [0, 4 * 10**10]}}
        ).encode()
        (tmp_path / "p.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
        self.refused(tmp_path, tmp_path / "p.safetensors")
        (tmp_path / "q.safetensors").write_bytes((2**62).to_bytes(8, "little") + header)
        self.refused(tmp_path, tmp_path / "q.safetensors")


def small():
    torch.manual_seed(0)
    return networks.build("small", num_classes=3, in_channels=1, normalize=((0.3,), (0.4,)), dropout=0.5)


def images(count=20):
    return torch.randint(256, (count, 1, 8, 8), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)


def labels(count=20):
    return torch.arange(count) % 3


class TestPredict:
    def test_it_says_what_the_model_says_in_evaluation_mode(self):
        model = small().train()
        found = predict(model, images(), labels(), dataset="toy", info={"a": "b"})
        state = {name: value.clone() for name, value in model.state_dict().items()}
        with torch.no_grad():
            torch.testing.assert_close(found.logits, model.eval()(images()), rtol=0, atol=1e-6)
        assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
        assert torch.equal(found.labels, labels())
        assert (found.dataset, found.info) == ("toy", {"a": "b"})

    def test_batch_norm_statistics_and_weights_do_not_move(self):
        model = small().train()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        predict(model, images(), labels())
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())

    @pytest.mark.parametrize("training", [True, False])
    def test_the_mode_is_restored(self, training):
        model = small().train(training)
        predict(model, images(), labels())
        assert all(module.training == training for module in model.modules())

    def test_a_part_frozen_in_evaluation_mode_stays_frozen(self):
        model = small().train()
        frozen = next(module for module in model.modules() if isinstance(module, nn.BatchNorm2d)).eval()
        predict(model, images(), labels())
        assert model.training
        assert not frozen.training

    def test_the_mode_is_restored_after_an_error(self):
        model = small().train()
        with pytest.raises(RuntimeError):
            predict(model, torch.zeros(2, 5, 8, 8), labels(2))
        assert model.training

    def test_features_and_the_linear_head_explain_the_logits(self):
        found = predict(small(), images(), labels())
        assert found.features.shape == (20, 64)
        explained = found.features @ found.head_weight.T + found.head_bias
        torch.testing.assert_close(explained, found.logits, rtol=0, atol=1e-5)
        assert found.logits.std() > 0

    def test_a_head_without_bias(self):
        model = small()
        model.head = nn.Linear(64, 3, bias=False)
        found = predict(model, images(), labels())
        assert found.head_weight is not None
        assert found.head_bias is None

    def test_a_head_that_is_not_linear_has_no_weights_to_store(self):
        model = small()
        model.head = nn.Sequential(nn.Linear(64, 3), nn.Tanh())
        found = predict(model, images(), labels())
        assert found.features is not None
        assert found.head_weight is None
        assert found.head_bias is None

    def test_predictions_do_not_change_when_training_goes_on(self):
        model = small()
        found = predict(model, images(), labels())
        before = replace(found, head_weight=found.head_weight.clone(), head_bias=found.head_bias.clone())
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1)
        assert torch.equal(found.head_weight, before.head_weight)
        assert torch.equal(found.head_bias, before.head_bias)

    def test_a_plain_module_has_no_features(self):
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
        pixels = images().float() / 255
        found = predict(model, pixels, labels())
        with torch.no_grad():
            assert torch.equal(found.logits, model(pixels))
        assert found.features is None
        assert found.head_weight is None

    def test_a_plain_module_gets_uint8_images_as_objectives_give_them(self):
        """Objectives divide uint8 pixels by 255 before the model sees them; prediction must do the same."""
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
        found = predict(model, images(), labels())
        with torch.no_grad():
            assert torch.equal(found.logits, model(images().float() / 255))

    def test_a_model_whose_forward_does_more_than_its_head_is_believed(self):
        class Scaled(nn.Module):
            """Has `features` and `head`, as several torchvision models do, and another step in between."""

            def __init__(self):
                super().__init__()
                self.body, self.head = nn.Linear(64, 4), nn.Linear(4, 3)

            def features(self, x):
                return self.body(x.flatten(1))

            def forward(self, x):
                return self.head(self.features(x).relu())

        torch.manual_seed(0)
        model = Scaled()
        pixels = images().float() / 255
        with torch.no_grad():
            torch.testing.assert_close(predict(model, pixels, labels()).logits, model(pixels))

    @pytest.mark.parametrize("batch_size", [1, 7, 20, 1000])
    def test_the_batch_size_does_not_matter(self, batch_size):
        whole, parts = predict(small(), images(), labels()), predict(small(), images(), labels(), batch_size=batch_size)
        torch.testing.assert_close(parts.logits, whole.logits, rtol=0, atol=1e-5)
        torch.testing.assert_close(parts.features, whole.features, rtol=0, atol=1e-5)

    def test_results_are_float32_without_history(self):
        model = small().double()
        found = predict(model, images(), labels())
        for name in ("logits", "features", "head_weight", "head_bias"):
            tensor = getattr(found, name)
            assert tensor.dtype == torch.float32, name
            assert not tensor.requires_grad, name

    def test_results_can_be_used_in_a_gradient_computation(self):
        found = predict(small(), images(), labels())
        temperature = torch.tensor(1.5, requires_grad=True)
        nn.functional.cross_entropy(found.logits / temperature, found.labels).backward()
        assert temperature.grad is not None

    def test_as_many_labels_as_images_are_needed(self):
        with pytest.raises(ValueError, match=r"images and labels must be .*, got \(20, 1, 8, 8\), \(19,\)"):
            predict(small(), images(), labels(19))
