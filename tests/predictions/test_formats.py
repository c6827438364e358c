"""Files of other people's models: what is understood, what is said about it, and probabilities that are no logits."""

import zipfile

import numpy as np
import pytest
import torch

from regmixup.evaluation.evaluate import evaluate
from regmixup.metrics.scores import score_all
from regmixup.posthoc import ensemble
from regmixup.predictions.store import from_probs, load, save
from regmixup.types import Predictions

LOGITS = 3 * torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
LABELS = torch.randint(3, (60,), generator=torch.Generator().manual_seed(1))
PROBS = LOGITS.softmax(dim=1)
SCORES_OF_PROBS = {"entropy", "max_probability", "gen"}
TWO = [[0.5, -2.0], [3.0, 4.0]]


def table(tmp_path, text, **arguments):
    (tmp_path / "p.csv").write_text(text)
    return load(tmp_path / "p.csv", **arguments)


class TestTables:
    @pytest.mark.parametrize(
        ("text", "read_as"),
        [
            ("0,Target,1\n0.5,1,-2\n3,0,4\n", None),
            ('label,"cat","dog"\n"dog",0.5,-2\n"cat",3,4\n', "labels are names of classes"),
            ("y,1,2\n2,0.5,-2\n1,3,4\n", "labels are names of classes"),
            (",0,1,label\n0,0.5,-2,1\n1,3,4,0\n", "left out: ''"),
            ("label, 0, 1, filename\n1, 0.5, -2, a.png\n\n0, 3, 4, #b\n", "left out: 'filename'"),
            ("label;0;1\n1;0.5;-2\n0;3;4\n", None),
            ("label\t0\t1\n1\t0.5\t-2\n0\t3\t4\n", None),
            ('label,0,1,"two\nlines",class_\n1,0.5,-2,a,b\n0,3,4,a,b\n', "left out: 'two\\nlines', 'class_'"),
        ],
    )
    def test_as_people_write_them(self, tmp_path, text, read_as):
        predictions = table(tmp_path, text)
        assert predictions.logits.tolist() == TWO
        assert predictions.labels.tolist() == [1, 0]
        assert predictions.info.get("read_as") == read_as

    @pytest.mark.parametrize("extra", ["y_pred", "image_id", "max_prob", "class_name", "any"])
    def test_columns_with_a_prefix_are_the_classes_and_no_others(self, tmp_path, extra):
        text = f"y_true,{extra},logit_cat,Logits_dog\n1,7,0.5,-2\n0,8,3,4\n"
        predictions = table(tmp_path, text)
        assert predictions.logits.tolist() == TWO
        assert predictions.info["read_as"] == f"left out: '{extra}'"

    @pytest.mark.parametrize(
        "text",
        [
            "label,cat,dog\n1,0.5,-2\n0,3,4\n",
            "label,cat,dog,any\ncat,0.5,-2,9\ndog,3,4,9\n",
            "cat,dog\n0.5,-2\n3,4\n",
            "0.5,-2\n3,4\n",
            "label,pred,confidence\n1,0.5,-2\n0,3,4\n",
            "label,1,2,3\n0,0.5,-2,9\n1,3,4,9\n",
            "label\n1\n",
        ],
    )
    def test_other_columns_are_never_guessed(self, tmp_path, text):
        with pytest.raises(ValueError, match=r"p.csv: the columns of the classes must be .*--columns 'logit_\*', got"):
            table(tmp_path, text)

    def test_columns_may_be_named(self, tmp_path):
        text = "label,a_cat,a_dog,any\n1,0.5,-2,9\n0,3,4,9\n"
        assert table(tmp_path, text, columns="a_*").logits.tolist() == TWO
        assert table(tmp_path, text, columns=["a_dog", "a_cat"]).logits.tolist() == TWO
        with pytest.raises(ValueError, match=r"the columns of the classes must be .*'a_cat', 'a_dog', 'any'"):
            table(tmp_path, text, columns=["b_*"])

    @pytest.mark.parametrize("prefix", ["class_", "logit_", ""])
    def test_classes_that_are_numbers_are_sorted_as_numbers(self, tmp_path, prefix):
        names = sorted(map(str, range(12)))  # 0, 1, 10, 11, 2, ...
        text = f"label,{','.join(prefix + name for name in names)}\n11,{','.join(names)}\n"
        predictions = table(tmp_path, text)
        assert predictions.logits.tolist() == [list(range(12))]
        assert predictions.labels.tolist() == [11]

    def test_logits_and_probs_name_the_same_classes_in_the_same_order(self, tmp_path):
        predictions = table(tmp_path, "label,prob_cat,prob_dog,logit_cat,logit_dog\ncat,0.7,0.3,2,1\n")
        assert predictions.logits.tolist() == [[2, 1]]
        assert predictions.probs.tolist() == [[0.7, 0.3]]
        for classes in ("prob_dog,prob_cat", "prob_cat,prob_horse"):
            with pytest.raises(ValueError, match="must name the same classes in the same order"):
                table(tmp_path, f"label,logit_cat,logit_dog,{classes}\ncat,2,1,0.7,0.3\n")

    def test_labels_are_places_where_one_is_no_name(self, tmp_path):
        text = "label,class_1,class_2,class_3\n{},0.5,-2,1\n2,3,4,5\n"
        assert table(tmp_path, text.format(0)).labels.tolist() == [0, 2]
        assert table(tmp_path, text.format(1)).labels.tolist() == [0, 1]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "it is empty"),
            ("label,cat,dog\n", "it is empty"),
            ("label,cat,target\n0,1,2\n", "the first line must name one column of labels, got label, target"),
            ("label,0,1\n0,1,2\n0,1\n", "line 3 must have 3 columns, got 2"),
            ("label;0;1\n1;0,5;2\n0;1;2\n", "line 2 must hold numbers for the classes, .*: '0,5'"),
            (
                "label,logit_cat,logit_dog\ncow,3,4\n",
                r"or among the classes that the file names \(cat, dog\), got 'cow'",
            ),
            (
                "label,logit_cat\n0,0.5\n1,1\n",
                r"logits or probs of shape \(N, K\), N >= 1, K >= 2, got .*logits \(2, 1\)",
            ),
            ("label,probs_a,probs_b\n0,3,-4\n", "probs must be >= 0 and sum to 1 in every row, got .* from -4 to 3"),
            ("label,logit_a,logit_b\n2,0,1\n", r"labels must lie in \[0, 2\)"),
        ],
    )
    def test_what_is_no_table_of_predictions_is_refused(self, tmp_path, text, message):
        with pytest.raises(ValueError, match=rf"p\.csv: .*{message}"):
            table(tmp_path, text)


def test_labels_may_lie_in_a_file_of_their_own(tmp_path):
    np.save(tmp_path / "labels.npy", np.array([1, 0]))
    np.save(tmp_path / "logits.npy", np.array(TWO))
    (tmp_path / "table.csv").write_text("logit_0,logit_1\n0.5,-2\n3,4\n")
    for file in ("logits.npy", "table.csv"):
        predictions = load(tmp_path / file, labels=tmp_path / "labels.npy")
        assert (predictions.logits.tolist(), predictions.labels.tolist()) == (TWO, [1, 0])
    np.savez(tmp_path / "both.npz", logits=np.array(TWO), labels=np.array([1, 0]))
    with pytest.raises(ValueError, match=r"labels of .*both.npz must be given once"):
        load(tmp_path / "both.npz", labels=tmp_path / "labels.npy")
    for name in ("labels.txt", "both.npz"):
        with pytest.raises(ValueError, match=rf"labels must be an .npy file, got .*{name}"):
            load(tmp_path / "logits.npy", labels=tmp_path / name)


@pytest.mark.parametrize("suffix", [".npz", ".pt"])
@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["dog", "cat"], ["cat", "dog"]),
        ([2, 1], ["1", "2"]),
        (["2", "1"], ["1", "2"]),
        (["02", "01"], ["01", "02"]),
        ([2, 1], ["01", "02"]),
        (["02", "cat"], ["cat", "02"]),
    ],
)
def test_labels_that_are_names_of_classes(tmp_path, suffix, labels, classes):
    """By the same rule in every format."""
    path = tmp_path / f"p{suffix}"
    if suffix == ".npz":
        np.savez(path, logits=np.array(TWO), labels=np.array(labels), classes=np.array(classes))
    else:
        tensor = torch.tensor(labels) if isinstance(labels[0], int) else labels
        torch.save({"logits": torch.tensor(TWO), "labels": tensor, "classes": classes}, path)
    predictions = load(path)
    assert predictions.labels.tolist() == [1, 0]
    assert predictions.info["read_as"] == "labels are names of classes"


@pytest.mark.parametrize("zipped", [True, False])
def test_tensors_that_torch_saved(tmp_path, zipped):
    content = {"logits": torch.tensor(TWO, requires_grad=True), "labels": torch.tensor([1, 0])}
    torch.save(content, tmp_path / "p.pt", _use_new_zipfile_serialization=zipped)
    predictions = load(tmp_path / "p.pt")
    assert predictions.logits.tolist() == TWO
    assert not predictions.logits.requires_grad
    assert predictions.labels.tolist() == [1, 0]


@pytest.mark.filterwarnings("ignore:Validating sparse")
def test_sparse_tensors_become_dense(tmp_path):
    labels = torch.tensor([1, 0])
    torch.save({"logits": torch.tensor(TWO).to_sparse(), "labels": labels.to_sparse()}, tmp_path / "p.pt")
    predictions = load(tmp_path / "p.pt")
    assert predictions.logits.tolist() == TWO
    assert predictions.labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (torch.tensor(TWO), "it must hold a dictionary of logits and labels, got Tensor"),
        ({"logits": torch.tensor(TWO), "model": {}}, "'model'.* Available: class_count"),
    ],
)
def test_what_torch_saved_must_be_tensors_by_the_names_of_fields(tmp_path, content, message):
    torch.save(content, tmp_path / "p.pt")
    with pytest.raises(ValueError, match=rf"p\.pt.*{message}"):
        load(tmp_path / "p.pt")


class TestProbabilities:
    def written(self, tmp_path):
        np.savez(tmp_path / "p.npz", probs=PROBS.numpy(), labels=LABELS.numpy())
        return tmp_path / "p.npz"

    def test_they_are_a_field_of_their_own(self, tmp_path):
        predictions = load(self.written(tmp_path))
        assert "probs alone: no score that needs the scale of logits" in predictions.info["read_as"]
        torch.testing.assert_close(predictions.logits.float(), LOGITS.log_softmax(dim=1), rtol=1e-5, atol=1e-6)
        rows = evaluate(Predictions(LOGITS, LABELS), bootstrap=None)
        of_logits = {(row.score, row.metric): row.value for row in rows}
        of_probs = {(row.score, row.metric): row.value for row in evaluate(predictions, bootstrap=None)}
        assert {score for score, _ in of_probs} == {"", *SCORES_OF_PROBS}
        for key, value in of_probs.items():
            assert value == pytest.approx(of_logits[key], rel=1e-5)

    def test_scores_that_need_the_scale_of_logits_are_left_out(self, tmp_path):
        predictions = load(self.written(tmp_path))
        save(predictions, tmp_path / "again.safetensors")
        mean = ensemble([Predictions(LOGITS, LABELS, dataset="p"), predictions])
        for without_scale in (predictions, load(tmp_path / "again.safetensors"), mean):
            assert set(score_all(without_scale)) - {"mutual_information"} == SCORES_OF_PROBS

    def test_against_a_set_with_logits_the_scores_of_both_remain(self, tmp_path):
        rows = evaluate(Predictions(LOGITS, LABELS), ood=[load(self.written(tmp_path))], bootstrap=None)
        assert {row.score for row in rows if row.metric == "auroc"} == SCORES_OF_PROBS

    def test_a_probability_of_0_is_clipped(self):
        predictions = from_probs(torch.tensor([[1.0, 0.0]]), torch.tensor([1]))
        nll = {row.metric: row.value for row in evaluate(predictions, bootstrap=None)}["nll"]
        assert nll == pytest.approx(12 * np.log(10))


@pytest.mark.parametrize("shape", [(1 << 20, 1 << 20), (0, 10**30)])
def test_a_header_that_claims_terabytes(tmp_path, shape):
    """NumPy refuses it before memory is taken."""
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    header = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    (tmp_path / "p.npy").write_bytes(header)
    with zipfile.ZipFile(tmp_path / "p.npz", "w") as file:
        file.writestr("logits.npy", header)
    for name in ("p.npy", "p.npz"):
        with pytest.raises(ValueError, match=rf"cannot read predictions from {tmp_path / name}: "):
            load(tmp_path / name)


@pytest.mark.parametrize("labels", ["01", "1"])
def test_numbers_with_zeros_before_them_are_names_where_the_last_class_does_not_occur(tmp_path, labels):
    """Taken for places they would be off by one, in silence."""
    names = [f"{number:02}" for number in range(1, 11)]
    (tmp_path / "p.csv").write_text(f"label,{','.join(f'logit_{name}' for name in names)}\n{labels}{10 * ',0.5'}\n")
    assert load(tmp_path / "p.csv").labels.tolist() == [0]


@pytest.mark.parametrize("classes", [["cat", "cat"], ["cat"], ["cat", "dog", "cow"], [["cat", "dog"]], "cat"])
def test_classes_are_as_many_different_names_as_there_are_logits(tmp_path, classes):
    np.savez(tmp_path / "p.npz", logits=np.array(TWO), labels=np.array(["cat", "cat"]), classes=np.array(classes))
    with pytest.raises(ValueError, match=r"p\.npz: classes must be (2 different names|a list of names)"):
        load(tmp_path / "p.npz")


def test_no_labels_are_too_few_labels_and_not_labels_of_another_type(tmp_path):
    np.savez(tmp_path / "p.npz", logits=np.array(TWO), labels=np.zeros(0, dtype=np.int64))
    with pytest.raises(ValueError, match=r"labels must be \(N\) for logits .* got torch.int64 of shape \(0,\)"):
        load(tmp_path / "p.npz")


def test_a_table_that_names_a_class_twice_is_refused(tmp_path):
    """As a join of the tables of two models does."""
    with pytest.raises(ValueError, match="classes must be 2 different names, got cat, cat"):
        table(tmp_path, "label,logit_cat,logit_cat\ncat,1,2\n")


def test_a_label_that_is_missing_in_one_line_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"or among the classes that the file names \(cat, dog\), got ''"):
        table(tmp_path, "label,logit_cat,logit_dog\ncat,1,2\n,1,2\n")
