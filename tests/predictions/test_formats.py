"""Files of other people's models: what is understood, what is said about it, and probabilities that are no logits."""

import numpy as np
import pytest
import torch

from regmixup.evaluation.evaluate import evaluate
from regmixup.metrics.scores import SCORES_OF_PROBS, score_all
from regmixup.posthoc import ensemble
from regmixup.predictions.formats import read_labels
from regmixup.predictions.store import from_probs, load, save
from regmixup.types import Predictions

LOGITS = 3 * torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
LABELS = torch.randint(3, (60,), generator=torch.Generator().manual_seed(1))
PROBS = LOGITS.softmax(dim=1)
TWO = [[0.5, -2.0], [3.0, 4.0]]


@pytest.mark.parametrize(
    ("text", "read_as"),
    [
        ("label,cat,dog\n1,0.5,-2\n0,3,4\n", None),
        ("cat,dog,label\n0.5,-2,1\n3,4,0\n", "labels are in the last column"),
        ("cat,Target,dog\n0.5,1,-2\n3,0,4\n", "labels are in column 2"),
        ("label,cat,dog\ndog,0.5,-2\ncat,3,4\n", "labels are names of classes"),
        ('label,"cat","dog"\n"dog",0.5,-2\n"cat",3,4\n', "labels are names of classes"),
        ("label,logit_cat,logit_dog\ndog,0.5,-2\ncat,3,4\n", "labels are names of classes"),
        ("y,1,2\n2,0.5,-2\n1,3,4\n", "labels are names of classes"),
        ("y,logits1,logits2\n2,0.5,-2\n1,3,4\n", "labels are names of classes"),
        (",label,cat,dog\n0,1,0.5,-2\n1,0,3,4\n", "column '' is left out; labels are in column 2"),
        (",0,1,label\n0,0.5,-2,1\n1,3,4,0\n", "column '' is left out; labels are in the last column"),
        (
            "label,cat,dog,Confidence,loss\n1,0.5,-2,0.9,2\n0,3,4,0.7,1\n",
            "column 'Confidence' is left out; column 'loss' is left out",
        ),
        ("label,cat,dog,filename\n1,0.5,-2,a.png\n0,3,4,b.png\n", "column 'filename' is left out"),
        ("label;cat;dog\n1;0.5;-2\n0;3;4\n", "separated by semicolons"),
        ("label;cat;dog\n1;0,5;-2\n0;3;4\n", "separated by semicolons; numbers have decimal commas"),
        ("label\tcat\tdog\n1\t0.5\t-2\n0\t3\t4\n", "separated by tabs"),
    ],
)
def test_tables_as_people_write_them(tmp_path, text, read_as):
    (tmp_path / "p.csv").write_text(text)
    found = load(tmp_path / "p.csv")
    assert found.logits.tolist() == TWO
    assert found.labels.tolist() == [1, 0]
    assert found.info.get("read_as") == read_as


def test_labels_that_may_be_places_or_names_are_places_where_one_is_no_name(tmp_path):
    (tmp_path / "p.csv").write_text("label,1,2,3\n0,0.5,-2,1\n2,3,4,5\n")
    assert load(tmp_path / "p.csv").labels.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("text", "labels", "read_as"),
    [
        ("1,0.5,-2\n0,3,4\n", "first", "no line of names; labels are in the first column"),
        ("0.5,-2,1\n3,4,0\n", "last", "no line of names; labels are in the last column"),
        ("0,5;-2;1\n3;4;0\n", "last", "separated by semicolons; no line of names; labels are in the last column; "
         "numbers have decimal commas"),
        ("cat,dog,truth\n0.5,-2,1\n3,4,0\n", "last", "labels are in the last column"),
        ("label,cat,dog\n1,0.5,-2\n0,3,4\n", "last", "labels are in the first column"),
    ],
)  # fmt: skip
def test_the_place_of_the_labels_may_be_said(tmp_path, text, labels, read_as):
    (tmp_path / "p.csv").write_text(text)
    found = load(tmp_path / "p.csv", labels=labels)
    assert found.logits.tolist() == TWO
    assert found.labels.tolist() == [1, 0]
    assert found.info["read_as"] == read_as


@pytest.mark.parametrize("name", ["labels.npy", "labels.csv", "labels.txt"])
def test_labels_may_lie_in_a_file_of_their_own(tmp_path, name):
    np.save(tmp_path / "logits.npy", np.array(TWO))
    (tmp_path / "table.csv").write_text("0.5,-2\n3,4\n")
    if name == "labels.npy":
        np.save(tmp_path / name, np.array([1, 0]))
    else:
        (tmp_path / name).write_text("label\n1\n0\n" if name == "labels.csv" else "1\n0\n")
    for file in ("logits.npy", "table.csv"):
        found = load(tmp_path / file, labels=tmp_path / name)
        assert (found.logits.tolist(), found.labels.tolist()) == (TWO, [1, 0])
    np.savez(tmp_path / "both.npz", logits=np.array(TWO), labels=np.array([1, 0]))
    with pytest.raises(ValueError, match=r"labels of .*both.npz must be given once"):
        load(tmp_path / "both.npz", labels=tmp_path / name)
    with pytest.raises(ValueError, match=r"cannot read labels from .*nowhere"):
        load(tmp_path / "logits.npy", labels=tmp_path / "nowhere")


@pytest.mark.parametrize("classes", ["win,loss", "win,draw,loss", "index,loss,win"])
def test_a_column_that_may_be_the_class_loss_is_refused(tmp_path, classes):
    """Left out of win and loss, it would make the column of win that of class 1, and so turn every answer round."""
    path = tmp_path / "p.csv"
    path.write_text(f"label,{classes}\n0{',1' * (classes.count(',') + 1)}\n")
    with pytest.raises(ValueError, match=r"column 'loss' may be a class .*write logit_ or prob_ before"):
        load(path)
    path.write_text("label,logit_win,logit_loss,loss\n0,3,-1,9\n1,-2,2,9\n")
    assert load(path).logits.tolist() == [[3, -1], [-2, 2]]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_text_that_is_not_utf_8_is_refused_in_words(tmp_path, encoding):
    logits, labels = tmp_path / "logits.csv", tmp_path / "labels.txt"
    logits.write_text("label,caf\u00e9,tea\n1,0.5,-2\n", encoding=encoding)
    labels.write_text("caf\u00e9\n", encoding=encoding)
    for what, read in (("predictions", lambda: load(logits)), ("labels", lambda: read_labels(labels))):
        with pytest.raises(ValueError, match=rf"cannot read {what} from .*its text must be UTF-8, got the byte 0x"):
            read()


def test_names_of_classes_in_an_archive(tmp_path):
    np.savez(
        tmp_path / "p.npz", logits=np.array(TWO), labels=np.array(["dog", "cat"]), classes=np.array(["cat", "dog"])
    )
    found = load(tmp_path / "p.npz")
    assert found.labels.tolist() == [1, 0]
    assert found.info["read_as"] == "labels are names of classes"
    np.savez(
        tmp_path / "q.npz", logits=np.array(TWO), labels=np.array(["dog", "cow"]), classes=np.array(["cat", "dog"])
    )
    with pytest.raises(ValueError, match=r"q.npz: labels must be among the classes cat, dog, got 'cow'"):
        load(tmp_path / "q.npz")


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    ("content", "read_as"),
    [
        ({"logits": torch.tensor(TWO), "labels": torch.tensor([1, 0])}, None),
        ([torch.tensor(TWO, requires_grad=True), torch.tensor([1, 0])], "two tensors: logits, labels"),
        (torch.tensor(TWO), "one tensor: logits"),
    ],
)
def test_tensors_that_torch_saved(tmp_path, content, read_as, zipped):
    torch.save(content, tmp_path / "p.pt", _use_new_zipfile_serialization=zipped)
    found = load(tmp_path / "p.pt")
    assert found.logits.tolist() == TWO
    assert found.labels.tolist() == ([-1, -1] if isinstance(content, torch.Tensor) else [1, 0])
    assert found.info.get("read_as") == read_as


def test_what_torch_saved_must_be_tensors(tmp_path):
    torch.save("text", tmp_path / "p.pt")
    with pytest.raises(ValueError, match=r"p.pt: it must hold a tensor, two, or a dictionary of tensors, got str"):
        load(tmp_path / "p.pt")
    torch.save({"logits": torch.tensor(TWO), "model": {}}, tmp_path / "p.pt")
    with pytest.raises(ValueError, match=r"unknown key in .*p.pt.* 'model'"):
        load(tmp_path / "p.pt")


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_one_logit_is_that_of_class_1_of_two(tmp_path, shape):
    logits, labels = np.array([-1.0, 0.5, 2.0, 0.0]), np.array([0, 1, 1, 0])
    np.savez(tmp_path / "p.npz", logits=logits.reshape(shape), labels=labels)
    found = load(tmp_path / "p.npz")
    torch.testing.assert_close(found.logits.softmax(dim=1)[:, 1], torch.from_numpy(logits).sigmoid())
    assert found.info["read_as"] == "one column of logits: that of class 1 of two"
    np.savez(tmp_path / "q.npz", probs=1 / (1 + np.exp(-logits.reshape(shape))), labels=labels)
    torch.testing.assert_close(load(tmp_path / "q.npz").logits.softmax(dim=1), found.logits.softmax(dim=1))


class TestProbabilities:
    def written(self, tmp_path, suffix):
        path = tmp_path / f"p{suffix}"
        if suffix == ".npz":
            np.savez(path, probs=PROBS.numpy(), labels=LABELS.numpy())
        elif suffix == ".pt":
            torch.save({"probs": PROBS, "labels": LABELS}, path)
        elif suffix == ".csv":
            rows = zip(LABELS.tolist(), PROBS.tolist(), strict=True)
            lines = [f"{label},{','.join(map(repr, row))}" for label, row in rows]
            path.write_text("\n".join(["label,probs_a,probs_b,probs_c", *lines]))
        else:
            from safetensors.torch import save_file

            save_file({"probs": PROBS, "labels": LABELS}, path)
        return path

    @pytest.mark.parametrize("suffix", [".npz", ".csv", ".safetensors", ".pt"])
    def test_they_are_a_field_of_their_own(self, tmp_path, suffix):
        found = load(self.written(tmp_path, suffix))
        assert "probs alone: no score that needs the scale of logits" in found.info["read_as"]
        torch.testing.assert_close(found.logits.float(), LOGITS.log_softmax(dim=1), rtol=1e-5, atol=1e-6)
        of_logits = {
            (row.score, row.metric): row.value for row in evaluate(Predictions(LOGITS, LABELS), bootstrap=None)
        }
        of_probs = {(row.score, row.metric): row.value for row in evaluate(found, bootstrap=None)}
        assert {score for score, _ in of_probs} == {"", *SCORES_OF_PROBS}
        for key, value in of_probs.items():
            assert value == pytest.approx(of_logits[key], rel=1e-5)

    @pytest.mark.parametrize("score", ["dempster_shafer", "energy", "max_logit", "odin", "duq"])
    def test_scores_that_need_the_scale_of_logits_are_refused(self, tmp_path, score):
        found = load(self.written(tmp_path, ".npz"))
        save(found, tmp_path / "again.safetensors")
        for one in (
            found,
            load(tmp_path / "again.safetensors"),
            ensemble([Predictions(LOGITS, LABELS, dataset="p"), found]),
        ):
            with pytest.raises(
                ValueError, match=f"{score} needs the scale of logits, which the probs for 'p' do not tell"
            ):
                score_all(one, names=[score])

    def test_against_a_set_with_logits_the_scores_of_both_remain(self, tmp_path):
        rows = evaluate(Predictions(LOGITS, LABELS), ood=[load(self.written(tmp_path, ".npz"))], bootstrap=None)
        assert {row.score for row in rows if row.metric == "auroc"} == set(SCORES_OF_PROBS)

    def test_a_probability_of_0_is_clipped(self):
        found = from_probs(torch.tensor([[1.0, 0.0]]), torch.tensor([1]))
        nll = {row.metric: row.value for row in evaluate(found, bootstrap=None)}["nll"]
        assert nll == pytest.approx(12 * np.log(10))

    @pytest.mark.parametrize("total", [1, 100])
    @pytest.mark.parametrize("role", ["test", "validation", "shift", "ood"])
    def test_in_the_place_of_logits_they_are_refused(self, role, total):
        wrong = Predictions(total * PROBS.round(decimals=2), LABELS, dataset="wrong")
        fine = Predictions(LOGITS, LABELS)
        sets = {"test": fine, role: wrong if role in ("test", "validation") else [wrong]}
        with pytest.raises(ValueError, match=r"the logits of wrong look like probabilities.*call them probs"):
            evaluate(sets.pop("test"), **sets, bootstrap=None)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("field", ["logits", "labels", "features"])
def test_numbers_of_8_bits_are_refused_by_the_name_of_their_file(tmp_path, dtype, field):
    from safetensors.torch import save_file

    save_file({"logits": LOGITS, field: torch.ones(60, 3).to(dtype)}, tmp_path / "p.safetensors")
    with pytest.raises(ValueError, match=rf"p.safetensors: {field} must be numbers of 16 bits or more, got {dtype}"):
        load(tmp_path / "p.safetensors")


def test_a_header_that_claims_terabytes_is_refused(tmp_path):
    with (tmp_path / "p.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (10**9, 1000)})
    with pytest.raises(ValueError, match=r"cannot read predictions from .*p.npy"):
        load(tmp_path / "p.npy")


def test_a_file_of_log_probabilities_says_so_and_has_no_score_of_their_scale(tmp_path):
    logits = np.random.default_rng(0).normal(size=(30, 3))
    for dtype in (np.float16, np.float32, np.float64):
        table = (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))).astype(dtype)
        np.savez(tmp_path / "a.npz", logits=table, labels=np.arange(30) % 3)
        found = load(tmp_path / "a.npz")
        assert found.from_probs
        assert found.info["read_as"].startswith("log-probabilities")
        assert set(score_all(found)) == set(SCORES_OF_PROBS)
    np.savez(tmp_path / "a.npz", logits=logits, labels=np.arange(30) % 3)
    assert not load(tmp_path / "a.npz").from_probs


def test_a_number_sign_in_a_file_name_begins_no_comment(tmp_path):
    (tmp_path / "a.csv").write_text("filename,label,cat,dog\n#1.png,0,2,1\na.png,1,0,3\nb #2.png,1,0,4\n")
    found = load(tmp_path / "a.csv")
    assert found.labels.tolist() == [0, 1, 1]
    assert found.logits[:, 1].tolist() == [1, 3, 4]
    (tmp_path / "a.csv").write_text("cat,dog,id\n2,1,a#1\n")
    first = load(tmp_path / "a.csv").info["ids"]
    (tmp_path / "a.csv").write_text("cat,dog,id\n2,1,a#2\n")
    assert load(tmp_path / "a.csv").info["ids"] != first
