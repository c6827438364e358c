"""What would stop a study is found before anything is trained."""

import re

import pytest

from regmixup.data.files import MissingDataError
from regmixup.study.check import check_data, check_folder, is_current, missing_data
from regmixup.study.plan import load_study, studies
from regmixup.study.runner import run_study
from tests.data.official import write_cifar
from tests.study.mini import MINI, write_mini
from tests.study.test_plan import CIFAR

SOME = ("standard", "imagenet", "cv-laplace", "digits")


def planned(folder, text):
    return list(load_study(str(write_mini(folder, text))).runs())


def test_missing_files_are_found_for_trained_companion_and_evaluated_sets(tmp_path):
    plan = planned(tmp_path, CIFAR)
    missing = missing_data(plan, tmp_path)
    assert {name.partition("/")[0] for name in missing} == {"cifar10", "cifar10-c", "cifar100", "svhn"}
    assert missing["svhn/test"] == ["test_32x32.mat"]
    write_cifar(tmp_path, "cifar10")
    assert not {"cifar10/train", "cifar10/test"} & set(missing_data(plan, tmp_path))
    with pytest.raises(MissingDataError, match=r"cifar100: cifar-100-python/train and 1 more") as error:
        check_data(plan, tmp_path)
    assert re.search(rf"`regmixup data fetch \S+ --root {tmp_path}`", str(error.value))
    assert len(str(error.value).splitlines()) < 8  # one line per family, not per set


def test_a_study_without_its_data_trains_nothing(tmp_path):
    study = load_study(str(write_mini(tmp_path, CIFAR)))
    with pytest.raises(MissingDataError, match="the study needs data that is missing"):
        run_study(study, tmp_path / "runs", root=tmp_path, device="cpu")
    assert not (tmp_path / "runs").exists()


def test_a_folder_of_images_must_be_there(tmp_path):
    text = MINI.replace('"photographs/test"', f'"folder:{tmp_path}/ood"')
    assert list(missing_data(planned(tmp_path, text))) == [f"folder:{tmp_path}/ood"]
    with pytest.raises(MissingDataError, match=f"folder:{tmp_path}/ood") as error:
        check_data(planned(tmp_path, text), tmp_path)
    assert "data fetch" not in str(error.value)  # which cannot fetch it
    (tmp_path / "ood").mkdir()
    assert missing_data(planned(tmp_path, text)) == {}
    assert missing_data(planned(tmp_path, MINI.replace("photographs/test", "folder:ood")), tmp_path) == {}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '"photographs/test"',
            '"svhn/test"',
            "svhn/test has images of 32x32, models of digits/train see images of 8x8",
        ),
        ('test = "digits/test"', 'test = "digits/train"', "test must be a set that the models are not trained on"),
        ('"photographs/test"', '"digits/test"', "ood must not name the test set, got digits/test"),
        ('"digits-c/contrast/5"', '"photographs/test"', "photographs/test does not show the classes of digits/train"),
        ('"photographs/test"', '"digits/val"', "ood must be a set unlike that trained on, got digits/val"),
    ],
)
def test_sets_that_do_not_fit_are_refused(tmp_path, old, new, message):
    with pytest.raises(ValueError, match=message):
        check_data(planned(tmp_path, MINI.replace(old, new)), tmp_path)


@pytest.mark.parametrize("name", [*SOME, *(pytest.param(name, marks=pytest.mark.soak) for name in studies())])
def test_the_sets_of_the_published_studies_fit(name, tmp_path):
    check_data(load_study(name, "smoke").runs(), tmp_path)
    if name != "digits":  # missing data comes after the sets were found to fit
        with pytest.raises(MissingDataError):
            check_data(load_study(name).runs(), tmp_path)


def test_cifar_100_c_is_no_shifted_version_of_cifar_10(tmp_path):
    text = CIFAR.replace('shift = ["cifar10-c"]', 'shift = ["cifar100-c"]')
    with pytest.raises(ValueError, match="cifar10-wrn28-10: cifar100-c does not show the classes of cifar10/train"):
        check_data(planned(tmp_path, text), tmp_path)


class TestFolder:
    """The mini study's folder, and who may write to it."""

    def test_the_same_file_and_the_same_study_edited_may_go_on(self, finished_study):
        check_folder(finished_study.study, finished_study.folder)
        path = write_mini(finished_study.runs.parent, MINI.replace("seeds = [0, 1]", "seeds = [0, 1, 2]"))
        edited = load_study(str(path))
        write_mini(finished_study.runs.parent)
        check_folder(edited, finished_study.folder)

    def test_the_same_content_elsewhere_may_go_on(self, finished_study, tmp_path):
        check_folder(load_study(str(write_mini(tmp_path))), finished_study.folder)

    @pytest.mark.parametrize(
        ("old", "new"), [('title = "Mini"', 'title = "Another"'), ("seeds = [0, 1]", "seeds = [0]")]
    )
    def test_another_study_of_the_same_stem_is_refused(self, finished_study, tmp_path, old, new):
        other = load_study(str(write_mini(tmp_path, MINI.replace(old, new))))
        with pytest.raises(ValueError, match=r"belongs to the study 'Mini' of .*mini\.toml.* its own `name`"):
            run_study(other, finished_study.runs, device="cpu")

    def test_a_record_that_cannot_be_read_is_nobodys(self, finished_study, tmp_path):
        (tmp_path / "study.json").write_text("{")
        check_folder(finished_study.study, tmp_path)
        assert not is_current(finished_study.study, tmp_path)

    def test_a_folder_without_a_study_is_nobodys(self, finished_study, tmp_path):
        check_folder(finished_study.study, tmp_path)
        assert not is_current(finished_study.study, tmp_path)

    def test_a_name_of_its_own_gives_a_study_a_folder_of_its_own(self, finished_study, tmp_path):
        text = MINI.replace('title = "Mini"', 'title = "Another"\nname = "another"').replace("[0, 1]", "[0]")
        folder = run_study(load_study(str(write_mini(tmp_path, text))), finished_study.runs, device="cpu")
        assert folder == finished_study.runs / "study-another"
