"""Aggregation over seeds and the search for the best cell."""

import re
from dataclasses import replace

from regmixup.report import tables
from regmixup.report.aggregation import Aggregation, Design, Quantity
from regmixup.report.tables import Column
from regmixup.report.units import unit_of
from regmixup.report.writers import to_latex, to_markdown
from regmixup.types import Row

from .reading import check_latex, read_markdown


def rows(metric="accuracy", **values):
    return [Row(method=m, seed=i, metric=metric, value=v) for m, vs in values.items() for i, v in enumerate(vs)]


ACCURACY = Column("accuracy", Quantity("", "accuracy"))


def tabulate(rows, columns, **more):
    design = Design(ensembles=frozenset({"deep-ensemble"}))
    return tables.tabulate(Aggregation(rows, design), columns, **more)


def main_columns(rows):
    return tables.main_columns(Aggregation(rows))


def test_the_best_cell_depends_on_the_direction():
    data = rows(a=[0.9, 0.8], b=[0.7, 0.6])
    for metric, best in {"accuracy": [True, False], "ece": [False, True], "temperature": [False, False]}.items():
        same = [replace(row, metric=metric) for row in data]
        table = tabulate(same, [replace(ACCURACY, quantity=ACCURACY.quantity._replace(metric=metric))])
        assert [line[0].best for line in table.lines.values()] == best


def test_cells_that_print_alike_are_tied():
    table = tabulate(rows(a=[0.90001], b=[0.90004], c=[0.5]), [ACCURACY])
    assert [line[0].best for line in table.lines.values()] == [True, True, False]


def test_a_missing_value_is_an_empty_cell_and_does_not_compete():
    table = tabulate([*rows(a=[0.9], b=[0.8]), Row(method="c", metric="ece", value=0.99)], [ACCURACY])
    assert table.lines["c"] == [None]
    assert table.lines["a"][0].best


def test_auroc_uses_the_papers_score_of_each_method():
    data = [
        Row(method=method, dataset="far", score=score, metric="auroc", value=value)
        for method in ("mixup", "mixup(alpha=1)", "regmixup")
        for score, value in (("entropy", 0.7), ("dempster_shafer", 0.9))
    ]
    titles = [c.title for c in main_columns(data)]
    table = tabulate(data, main_columns(data))
    index = titles.index("AUROC far")
    assert table.lines["mixup"][index].mean == 0.7
    assert table.lines["mixup(alpha=1)"][index].mean == 0.7
    assert table.lines["regmixup"][index].mean == 0.9


CIFAR = {"network": "wrn28-10", "train_set": "cifar10/train", "dataset": "cifar10/test", "metric": "accuracy"}
TEST_ACCURACY = Column("accuracy", Quantity("cifar10/test", "accuracy"))
MEASURED = {
    "dnn": [0.960, 0.961, 0.962],
    "mixup": [0.9585, 0.9615, 0.963],
    "regmixup": [0.970, 0.9715, 0.972],
    "deep-ensemble": [0.971, 0.972, 0.973],
}


def measured(changed=None, **fields):
    data = [Row(**CIFAR | fields, method=m, seed=i, value=v) for m, vs in MEASURED.items() for i, v in enumerate(vs)]
    place = {name: value for name, value in (CIFAR | fields).items() if name in Quantity._fields}
    return tabulate(data, [Column("accuracy", Quantity(**place))], caption="Ours", label="tab:ours", changed=changed)


def cells_of(table):
    return {method: line[0] for method, line in table.lines.items()}


def test_bold_is_for_single_models_and_underlined_for_all():
    cells = cells_of(measured())
    assert [m for m, cell in cells.items() if cell.best] == ["regmixup"]
    assert [m for m, cell in cells.items() if cell.best_overall] == ["deep-ensemble"]


def test_the_signs_are_explained_that_occur():
    words = {
        "Bold: best single model": ("dnn", "mixup"),
        "Underlined: best of all with ensembles": ("dnn", "deep-ensemble"),
    }
    words["Bold: best single model, underlined: best of all with ensembles"] = ("dnn", "mixup", "deep-ensemble")
    for remark, methods in words.items():
        table = tabulate(rows(**{method: [0.1 * place] for place, method in enumerate(methods)}), [ACCURACY])
        assert f"{remark}; equal numbers are tied." in list(table.remarks())


def test_the_scores_behind_an_auroc_are_named():
    auroc = Column("AUROC cifar100", Quantity("cifar100/test", "auroc"))
    by_energy = Column("AUROC by energy", Quantity("cifar100/test", "auroc", score="energy"))
    measured = [
        Row(method=method, dataset="cifar100/test", metric="auroc", score=score, value=0.9)
        for method in ("mixup", "dnn", "regmixup")
        for score in ("entropy", "dempster_shafer", "energy")
    ]
    remark = "AUROC by dempster_shafer (mixup by entropy): each method's own score."
    assert remark in list(tabulate(measured, [auroc]).remarks())
    assert "AUROC by dempster_shafer: each method's own score." in list(tabulate(measured[3:], [auroc]).remarks())
    assert not any("AUROC" in line for line in tabulate(measured, [by_energy]).remarks())
    # A method of a plugin that is not loaded: its study has recorded the score.
    own = [Row(method="own", dataset="cifar100/test", metric="auroc", score="energy", value=0.8), *measured[3:]]
    table = tables.tabulate(Aggregation(own, Design(scores={"own": "energy"})), [auroc])
    assert "AUROC by dempster_shafer (own by energy): each method's own score." in list(table.remarks())
    assert cells_of(table)["own"].mean == 0.8


def test_a_cell_stands_beside_the_papers_number():
    cells = cells_of(measured())
    assert cells["dnn"].against_paper == "paper 96.14, −0.04"
    assert cells["deep-ensemble"].against_paper == "paper 96.75, +0.45"
    assert cells_of(measured(dataset="digits/test"))["dnn"].paper is None
    assert cells_of(measured(dataset="digits/test"))["dnn"].against_paper == ""


def test_a_difference_from_dnn_beyond_that_of_the_seeds_is_marked():
    cells = cells_of(measured())
    assert cells["dnn"].p is None
    assert [m for m, cell in cells.items() if cell.beside.endswith("*")] == ["regmixup", "deep-ensemble"]
    assert [m for m, cell in cells.items() if cell.better] == ["regmixup", "deep-ensemble"]
    assert all(cell.p is not None for method, cell in cells.items() if method != "dnn")


def test_what_to_know_before_comparing_is_noted():
    one = tabulate([Row(**CIFAR, method="dnn", seed=0, value=0.9)], [TEST_ACCURACY]).lines["dnn"][0]
    assert one.notes == ("One seed: no spread is known.",)
    rebuilt = cells_of(measured(dataset="cifar10-c (rebuilt)", corruption="mean"))["dnn"]
    assert rebuilt.notes == ("The set was rebuilt here; it is not the published one.",)
    assert rebuilt.paper.text == "76.60"
    short = cells_of(measured(changed={"dnn": ["epochs 30 instead of 350"]}))
    assert short["dnn"].notes == ("Changed recipe: epochs 30 instead of 350.",)
    assert short["mixup"].notes == ()
    for method, silent in {"cutmix": True, "mixup+cutmix(alpha=1)": True, "regmixup": False}.items():
        data = [Row(**CIFAR, method=method, seed=i, value=0.9) for i in (0, 1)]
        (cell,) = tabulate(data, [TEST_ACCURACY]).lines[method]
        assert any("paper does not say which values and score" in note for note in cell.notes) == silent


def test_a_number_of_the_paper_in_doubt_says_why():
    quantity = Quantity("cifar100/test", "auroc", score="dempster_shafer")
    data = [Row(**CIFAR | quantity._asdict(), method="dnn", seed=i, value=0.9) for i in (0, 1)]
    (cell,) = tabulate(data, [Column("AUROC", quantity)]).lines["dnn"]
    assert cell.notes == (f"The paper's number is in doubt. {cell.paper.slip}",)
    assert cell.paper.slip.startswith("DNN has 88.61 for both networks")


def test_a_written_cell_has_mean_spread_n_star_and_the_papers_number():
    table = measured()
    head, _, *lines = read_markdown(to_markdown(table))
    assert [cell.text for cell in head] == ["method", "accuracy ↑"]
    assert [line[0].text for line in lines] == [*MEASURED]
    texts = {line[0].text: line[1] for line in lines}
    assert texts["dnn"].text == "96.10 ± 0.10 (3)<br>paper 96.14, −0.04"
    assert texts["regmixup"].text == "97.12 ± 0.10 (3) *<br>paper 97.46, −0.34"
    assert (texts["regmixup"].bold, texts["regmixup"].underline) == (True, False)
    assert (texts["deep-ensemble"].bold, texts["deep-ensemble"].underline) == (False, True)


def test_a_measured_table_in_latex():
    text = to_latex(measured())
    check_latex(text)
    assert re.findall(r"^(?:.midrule|[a-z-]+ &)", text, re.MULTILINE) == [
        *(r"\midrule", "dnn &", "mixup &", "regmixup &", r"\midrule", "deep-ensemble &")
    ]
    assert r"\textbf{97.12} $\pm$ 0.10 (3) {*} \\" in text
    assert "paper 97.46, $-$0.34" in text
    assert "(number of seeds), in percent." in text
    assert "by Welch's t-test, after Holm's" in text
    assert "Every table compares the numbers that it shows; a rule in the study's own text comes before this" in text
    assert r"\label{tab:ours}" in text


def test_what_is_no_share_of_images_is_not_shown_in_percent():
    """A Brier score goes up to 2, and a prior variance has no bound."""
    shown = {metric: unit_of(metric).write(1.5) for metric in ("brier", "prior_variance", "nll", "aurc")}
    assert shown == {"brier": "1.500", "prior_variance": "1.500", "nll": "1.500", "aurc": "1500.00"}
