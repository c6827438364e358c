"""What is found in a folder of photographs, and what is refused."""

import shutil
from pathlib import Path

import pytest

from regmixup.data import load
from regmixup.data.roles import validation_of
from regmixup.deployment.folder import hide_files, inspect, suggest

from .photos import COLOURS, write_photo, write_photos


def files_of(photos):
    return {role: set(load(name).paths) for role, name in photos.parts().items()}


def test_class_folders_are_cut_into_three_disjoint_parts_by_content(tmp_path):
    photos = inspect(write_photos(tmp_path / "photos", 20))
    files = files_of(photos)
    assert {role: len(found) for role, found in files.items()} == {"train": 42, "validation": 9, "test": 9}
    assert len(set.union(*files.values())) == sum(photos.counts) == 60
    assert photos.classes == tuple(COLOURS)
    assert photos.counts == (20, 20, 20)
    assert validation_of(photos.train) == photos.validation


def test_parts_have_one_name_however_the_folder_is_spelled(tmp_path, monkeypatch):
    folder = write_photos(tmp_path / "photos", 20)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert inspect("../photos").parts() == inspect("../here/../photos").parts() == inspect(folder).parts()


def test_own_parts_stay_as_they_are(tmp_path):
    for first, part in enumerate(("Train", "Valid", "test")):
        write_photos(tmp_path / part, 4, first=100 * first)
    photos = inspect(tmp_path)
    assert [name.rpartition("/")[2] for name in photos.parts().values()] == ["Train", "Valid", "test"]
    assert validation_of(photos.train) == photos.validation
    assert photos.counts == (12, 12, 12)


@pytest.mark.parametrize("other", ["val", "test"])
def test_with_one_other_part_it_is_kept_for_the_test(tmp_path, other):
    write_photos(tmp_path / "train", 10)
    write_photos(tmp_path / other, 3, first=50)
    photos = inspect(tmp_path)
    assert photos.test == f"folder:{tmp_path / other}"
    assert photos.sizes == {photos.train: 24, photos.validation: 6, photos.test: 9}
    assert f"{other}/ is kept for the test" in photos.describe()


def test_copies_across_parts_and_classes_are_named_and_cuts_never_make_them(tmp_path):
    for first, part in enumerate(("train", "val", "test")):
        write_photos(tmp_path / part, 3, first=100 * first)
    photos = inspect(tmp_path)
    assert (photos.copies, [note for note in photos.notes if "copies" in note]) == (0, [])
    shutil.copy(tmp_path / "train" / "lime" / "1.jpg", tmp_path / "val" / "plum" / "other-name.jpg")
    shutil.copy(tmp_path / "train" / "lime" / "2.jpg", tmp_path / "test" / "lime" / "again.jpg")
    photos = inspect(tmp_path)
    assert photos.copies == 2
    several, copies = photos.notes
    assert several.startswith("images that are in several classes, as copies of one file: ")
    assert {Path(file).parent.name for file in several.partition(": ")[2].split(" = ")} == {"lime", "plum"}
    assert "2 images to choose or test on are copies of train images" in copies
    assert f"{tmp_path}/test/lime/again.jpg = {tmp_path}/train/lime/2.jpg" in copies
    shutil.copy(tmp_path / "train" / "lime" / "1.jpg", tmp_path / "train" / "lime" / "twin.jpg")
    assert inspect(tmp_path / "train").copies == 0


def test_unreadable_files_are_refused_by_name_and_hidden_on_request(tmp_path):
    write_photos(tmp_path, 6)
    cut, text = tmp_path / "lime" / "2.jpg", tmp_path / "plum" / "notes.png"
    cut.write_bytes(cut.read_bytes()[:400])
    text.write_text("no image")
    gone = tmp_path / "plum" / "x.jpg"
    gone.symlink_to(tmp_path / "nowhere")
    each = rf"{cut} \(.*truncated.*\), {text} \(.* file 'notes\.png'\), {gone} \(.*No such file .*: 'x\.jpg'\)"
    with pytest.raises(ValueError, match=rf"(?i)3 in .* cannot: {each}\. Replace .*--hide-unreadable"):
        inspect(tmp_path)
    gone.unlink()

    text.with_name(".notes.png").write_text("hidden before")
    assert {name.rpartition("/")[2] for name in hide_files(tmp_path)} == {".2.jpg", "..notes.png"}
    assert text.with_name(".notes.png").read_text() == "hidden before"
    assert inspect(tmp_path).counts == (6, 5, 6)


def test_a_jpeg_with_too_many_pixels_is_refused_before_training_as_any_other_format(tmp_path, monkeypatch):
    write_photos(tmp_path, 6)
    for module in ("regmixup.data.decode", "regmixup.deployment.folder"):
        monkeypatch.setattr(f"{module}.MAX_PIXELS", 100)
    with pytest.raises(ValueError, match=r"18 in .* cannot: (.*expected at most 100 pixels){10}.* and 8 more\."):
        inspect(tmp_path)


def test_images_of_formats_that_are_not_read_are_told(tmp_path):
    write_photos(tmp_path, 6)
    assert "not read" not in inspect(tmp_path).describe()
    for name in ("lime/a.TIF", "lime/b.tif", "plum/c.heic", "plum/.d.gif", "plum/notes.txt"):
        (tmp_path / name).write_bytes(b"")
    assert "not read were left out (1 .heic, 2 .tif): convert them" in inspect(tmp_path).describe()


def one_image_each(folder):
    write_photos(folder, 1)


def copies_of_one_image(folder):
    write_photos(folder, 6)
    for index in range(1, 6):
        shutil.copy(folder / "plum" / "0.jpg", folder / "plum" / f"{index}.jpg")


def one_class(folder):
    write_photos(folder, 6, colours={"apple": COLOURS["apple"]})


def loose_images(folder):
    write_photo(folder / "0.jpg", COLOURS["plum"], 0)


def no_train(folder):
    write_photos(folder / "val", 6)
    write_photos(folder / "test", 6, first=50)


def new_class_in_test(folder):
    write_photos(folder / "train", 6)
    write_photos(folder / "test", 6, first=50, colours={**COLOURS, "pear": (200, 200, 50)})


def other_formats(folder):
    for name in ("cats/1.HEIC", "dogs/2.heic"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(b"")


def classes_a_level_deeper(folder):
    write_photos(folder / "fruit", 6)


def nothing(folder):
    folder.mkdir(exist_ok=True)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (nothing, "found no images.*make a folder for each class"),
        (loose_images, "found 1 image outside of class folders.*make a folder for each class"),
        (other_formats, r"found no images in .*\(2 \.heic\): convert them to \.png or \.jpg$"),
        (one_class, "at least two classes, found apple.*add a folder.*, beside it$"),
        (
            classes_a_level_deeper,
            "found fruit .* If the subfolders of .*/photos/fruit are the classes, name that folder",
        ),
        (one_image_each, "at least 3 different images of every class.*apple 1, lime 1, plum 1.*add images"),
        (copies_of_one_image, "found plum 1 .*add images"),
        (no_train, "must have train/ beside test, val/.*rename"),
        (
            new_class_in_test,
            "test must have classes of the train part alone.*pear.*to train/, or remove these folders$",
        ),
    ],
)
def test_what_cannot_be_learned_from_is_refused_with_the_remedy(tmp_path, write, message):
    write(tmp_path / "photos")
    with pytest.raises(ValueError, match=message):
        inspect(tmp_path / "photos")


def test_images_outside_of_class_folders_are_told(tmp_path):
    write_photos(tmp_path, 6)
    loose_images(tmp_path)
    with pytest.warns(UserWarning, match=r"left out 1 image outside of class folders, such as 0\.jpg") as told:
        inspect(tmp_path)
    assert {warning.filename for warning in told} == {__file__}  # the caller's line, not one of this package


def test_every_file_that_is_read_is_counted(tmp_path):
    told = []
    inspect(write_photos(tmp_path, 6), lambda *what: told.append(what))
    assert told == [("reading", 1, 18)] * 18


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="found no folder"):
        inspect(tmp_path / "nowhere")


def test_few_validation_images_are_told(tmp_path):
    write_photos(tmp_path / "train", 5)
    write_photos(tmp_path / "test", 2, first=50)
    write_photos(tmp_path / "val", 9, first=100)
    assert "warning      27 validation images are few" in inspect(tmp_path).describe()
    write_photos(tmp_path / "val", 10, first=100)
    assert "validation images are few" not in inspect(tmp_path).describe()


def test_imbalance_is_told_with_the_remedy(tmp_path):
    write_photos(tmp_path, 5)
    assert "--class-weights" not in inspect(tmp_path).describe()
    write_photos(tmp_path, 15, colours={"plum": COLOURS["plum"]})
    assert inspect(tmp_path).imbalance == 3
    assert "3.0 times the images of the smallest: --class-weights balanced" in inspect(tmp_path).describe()
    assert "--class-weights" not in inspect(tmp_path).describe(class_weights="balanced")


def test_epochs_follow_the_number_of_images_and_the_size_the_backbone(tmp_path):
    photos = inspect(write_photos(tmp_path, 6))
    settings = suggest(photos, backbone="timm/test_vit")
    assert (settings.epochs, settings.image_size) == (30, 160)
    assert suggest(photos).image_size == 224
    assert suggest(photos, image_size=96).image_size == 96


def test_folders_one_level_too_deep_are_told(tmp_path):
    """animals/cat, animals/dog, things/cup: the classes are animals and things, which may not be what was meant."""
    deep = {"animals/cat": (200, 40, 40), "animals/dog": (60, 190, 60), "things/cup": (90, 40, 160)}
    photos = inspect(write_photos(tmp_path, 6, colours=deep))
    assert photos.classes == ("animals", "things")
    assert "images in subfolders count for the class folder around them: animals/ with cat/, dog/." in photos.describe()
    write_photo(tmp_path / "things" / "0.jpg", (1, 2, 3), 99)
    assert "in subfolders" not in inspect(tmp_path).describe()
