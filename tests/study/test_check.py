"""What would stop a study is found before anything is trained."""

import pytest

from regmixup.data.files import MissingDataError
from regmixup.study.check import check_data, missing_data
from regmixup.study.plan import load_study
from regmixup.study.runner import run_study
from tests.data.official import write_cifar
from tests.study.mini import MINI, write_mini
from tests.study.test_plan import CIFAR


def planned(folder, text):
    return list(load_study(str(write_mini(folder, text))).runs())


def test_missing_files_are_found_for_trained_companion_and_evaluated_sets(tmp_path):
    plan = planned(tmp_path, CIFAR)
    missing = missing_data(plan, tmp_path)
    assert {name.partition("/")[0] for name in missing} == {"cifar10", "cifar10-c", "cifar100", "svhn"}
    assert missing["svhn/test"] == ["test_32x32.mat"]
    write_cifar(tmp_path, "cifar10")
    assert not {"cifar10/train", "cifar10/test"} & set(missing_data(plan, tmp_path))
    with pytest.raises(MissingDataError, match=r"cifar100: cifar-100-python/meta and 2 more") as error:
        check_data(plan, tmp_path)
    assert len(str(error.value).splitlines()) < 8  # one line per family, not per set


def test_a_study_without_its_data_trains_nothing(tmp_path):
    study = load_study(str(write_mini(tmp_path, CIFAR)))
    with pytest.raises(MissingDataError, match="the study needs data that is missing"):
        run_study(study, tmp_path / "runs", root=tmp_path, device="cpu")
    assert not (tmp_path / "runs").exists()


def test_a_folder_of_images_must_be_there(tmp_path):
    text = MINI.replace('"photographs/test"', f'"folder:{tmp_path}/ood"')
    assert list(missing_data(planned(tmp_path, text))) == [f"folder:{tmp_path}/ood"]
    with pytest.raises(MissingDataError, match=f"folder:{tmp_path}/ood"):
        check_data(planned(tmp_path, text), tmp_path)
    (tmp_path / "ood").mkdir()
    assert missing_data(planned(tmp_path, text)) == {}
    assert missing_data(planned(tmp_path, MINI.replace("photographs/test", "folder:ood")), tmp_path) == {}
