"""What is found in a folder of photographs, and what is refused."""

import shutil

import pytest

from regmixup.data import load
from regmixup.data.roles import validation_of
from regmixup.deployment.folder import inspect

from .photos import COLOURS, write_photo, write_photos


def test_class_folders_are_cut_into_three_disjoint_parts_by_content(tmp_path):
    photos = inspect(write_photos(tmp_path / "photos", 20))
    files = {role: set(load(part.name).paths) for role, part in photos.parts.items()}
    assert {role: len(found) for role, found in files.items()} == {"train": 42, "validation": 9, "test": 9}
    assert len(set.union(*files.values())) == 60
    assert photos.counts == dict.fromkeys(COLOURS, 20)
    assert validation_of(photos.parts["train"].name) == photos.parts["validation"].name


def test_parts_have_one_name_however_the_folder_is_spelled(tmp_path, monkeypatch):
    folder = write_photos(tmp_path / "photos", 20)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert inspect("../photos").record() == inspect("../here/../photos").record() == inspect(folder).record()


def test_own_parts_stay_as_they_are(tmp_path):
    for first, part in enumerate(("Train", "Valid", "test")):
        write_photos(tmp_path / part, 4, first=100 * first)
    photos = inspect(tmp_path)
    assert [part.name.rpartition("/")[2] for part in photos.parts.values()] == ["Train", "Valid", "test"]
    assert validation_of(photos.parts["train"].name) == photos.parts["validation"].name
    assert photos.counts == dict.fromkeys(COLOURS, 12)


@pytest.mark.parametrize("other", ["val", "test"])
def test_with_one_other_part_it_is_kept_for_the_test(tmp_path, other):
    write_photos(tmp_path / "train", 10)
    write_photos(tmp_path / other, 3, first=50)
    photos = inspect(tmp_path)
    assert photos.record()["test"] == f"folder:{tmp_path / other}"
    assert photos.record()["sizes"] == {"train": 24, "validation": 6, "test": 9}
    assert f"{other}/ is kept for the test" in photos.describe()


def test_copies_across_parts_are_named_and_cuts_never_make_them(tmp_path):
    for first, part in enumerate(("train", "val", "test")):
        write_photos(tmp_path / part, 3, first=100 * first)
    assert (inspect(tmp_path).copies, inspect(tmp_path).notes) == (0, ())
    shutil.copy(tmp_path / "train" / "lime" / "1.jpg", tmp_path / "val" / "plum" / "other-name.jpg")
    shutil.copy(tmp_path / "train" / "lime" / "2.jpg", tmp_path / "test" / "lime" / "again.jpg")
    photos = inspect(tmp_path)
    note, doubtful = photos.notes
    assert photos.copies == 2
    assert doubtful.endswith(f": {tmp_path}/train/lime/1.jpg = {tmp_path}/val/plum/other-name.jpg")
    assert "2 images to choose or test on are copies of train images" in note
    assert f"{tmp_path}/test/lime/again.jpg = {tmp_path}/train/lime/2.jpg" in note
    shutil.copy(tmp_path / "train" / "lime" / "1.jpg", tmp_path / "train" / "lime" / "twin.jpg")
    assert inspect(tmp_path / "train").copies == 0


def test_unreadable_files_are_refused_by_name(tmp_path):
    write_photos(tmp_path, 6)
    cut, text, gone = tmp_path / "lime" / "2.jpg", tmp_path / "plum" / "notes.png", tmp_path / "plum" / "x.jpg"
    cut.write_bytes(cut.read_bytes()[:400])
    text.write_text("no image")
    gone.symlink_to(tmp_path / "nowhere")
    each = rf"{cut} \(.*truncated.*\), {text} \(.* file 'notes\.png'\), {gone} \(.*No such file .*: 'x\.jpg'\)"
    with pytest.raises(ValueError, match=rf"(?i)3 cannot: {each}\. Replace or delete them"):
        inspect(tmp_path)


def test_a_jpeg_with_too_many_pixels_is_refused_before_training_as_any_other_format(tmp_path, monkeypatch):
    write_photos(tmp_path, 6)
    for module in ("regmixup.data.decode", "regmixup.deployment.folder"):
        monkeypatch.setattr(f"{module}.MAX_PIXELS", 100)
    with pytest.raises(ValueError, match=r"18 cannot: (.*expected at most 100 pixels){10}.* and 8 more\."):
        inspect(tmp_path)


def test_images_of_formats_that_are_not_read_are_told(tmp_path):
    write_photos(tmp_path, 6)
    assert "not read" not in inspect(tmp_path).describe()
    for name in ("lime/a.AVIF", "lime/b.avif", "plum/c.heic", "plum/.d.heic", "plum/notes.txt"):
        (tmp_path / name).write_bytes(b"")
    assert "not read were left out (2 .avif, 1 .heic): convert them" in inspect(tmp_path).describe()


def copies_of_one_image(folder):
    write_photos(folder, 6)
    for index in range(1, 6):
        shutil.copy(folder / "plum" / "0.jpg", folder / "plum" / f"{index}.jpg")


def one_class(folder):
    write_photos(folder, 6, colours={"apple": COLOURS["apple"]})


def new_class_in_test(folder):
    write_photos(folder / "train", 6)
    write_photos(folder / "test", 6, first=50, colours={**COLOURS, "pear": (200, 200, 50)})


def other_formats(folder):
    for name in ("cats/1.HEIC", "dogs/2.heic"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(b"")


def classes_a_level_deeper(folder):
    write_photos(folder / "fruit", 6)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda folder: None, "found no folder"),
        (other_formats, r"must be .jpg or .png files .*\(2 \.heic\): convert them to \.png or \.jpg$"),
        (one_class, "at least two classes, found apple.*add images that are not"),
        (classes_a_level_deeper, "found fruit .*name its folder if the classes are folders in it"),
        (copies_of_one_image, "at least 3 different images of every class.* found plum 1 .*add images"),
        (
            new_class_in_test,
            "other parts must have classes of the train part alone, .*test also has pear: .*or remove these folders$",
        ),
    ],
)
def test_what_cannot_be_learned_from_is_refused_with_the_remedy(tmp_path, write, message):
    write(tmp_path / "photos")
    with pytest.raises(ValueError, match=message):
        inspect(tmp_path / "photos")


def test_all_problems_are_told_at_once_and_files_that_cannot_be_read_do_not_count(tmp_path):
    """Lime has three images, one of them damaged, so two: else a second try would be refused for these."""
    write_photos(tmp_path / "train", 3)
    write_photos(tmp_path / "test", 3, first=50, colours={"Apple": COLOURS["apple"], "lime": COLOURS["lime"]})
    (tmp_path / "train" / "lime" / "2.jpg").write_bytes(b"no image")
    (tmp_path / "train" / "plum" / "2.jpg").unlink()
    (tmp_path / "train" / "plum" / "1.jpg").unlink()
    with pytest.raises(ValueError, match=rf"3 problems in {tmp_path}:\n") as error:
        inspect(tmp_path)
    decoded, few, strange, lacking, case = str(error.value).splitlines()[1:]
    assert "1 cannot: " in decoded
    assert "lime/2.jpg (cannot identify" in decoded
    assert "at least 2 different images of every class" in few
    assert "found plum 1 in" in few
    assert "test also has Apple: " in strange
    assert lacking == "- test/ has no image of apple, plum: its results leave them out"
    assert case == "- names of classes look alike, which may be one class: Apple and apple"
    write_photo(tmp_path / "train" / "plum" / "1.jpg", COLOURS["plum"], 77)
    (tmp_path / "train" / "lime" / "1.jpg").unlink()
    with pytest.raises(ValueError, match="found lime 1 in"):
        inspect(tmp_path)


def test_a_table_of_paths_and_labels_is_cut_as_a_folder_is(tmp_path):
    folder = write_photos(tmp_path / "photos", 20)
    rows = [f"{path.relative_to(folder)},{path.parent.name}" for path in folder.rglob("*.jpg")]
    (folder / "labels.csv").write_text("\n".join(["path,label", *rows]))
    photos, same = inspect(folder / "labels.csv"), inspect(folder)
    assert (photos.counts, photos.classes, photos.notes) == (same.counts, same.classes, ())
    for role, part in photos.parts.items():
        assert sorted(part.paths) == sorted(same.parts[role].paths)
    assert photos.fingerprint != same.fingerprint


def test_problems_of_a_table_are_told_with_those_of_its_files(tmp_path):
    folder = write_photos(tmp_path / "photos", 3)
    rows = [f"{path.relative_to(folder)},{path.parent.name}" for path in sorted(folder.rglob("*.jpg"))]
    (folder / "lime" / "0.jpg").write_bytes(b"no image")
    (folder / "labels.csv").write_text("\n".join(["path,label", *rows, "gone.jpg,lime", "/etc/x.jpg,lime"]))
    with pytest.raises(ValueError, match="4 problems") as error:
        inspect(folder / "labels.csv")
    for said in (
        "1 row of labels.csv must name files that exist: gone.jpg in line 11",
        "1 row of labels.csv must have paths below its folder, without / in front and without ..: /etc/x.jpg in",
        "1 cannot: ",
        "found lime 2 in",
    ):
        assert said in str(error.value)


def test_images_beside_the_parts_are_told(tmp_path):
    """Classes bus, car and train, with a folder for every year: train would be taken for the train part."""
    years = {f"{name}/{year}": colour for name, colour in COLOURS.items() for year in (2023, 2024)}
    write_photos(tmp_path, 6, colours={name.replace("lime", "train"): colour for name, colour in years.items()})
    (note,) = inspect(tmp_path).notes
    assert "images beside the parts train are left out: apple, plum. If train is a class" in note


def test_parts_that_lack_a_class_are_told(tmp_path):
    for first, part in enumerate(("train", "val", "test")):
        write_photos(tmp_path / part, 3, first=100 * first)
    shutil.rmtree(tmp_path / "val" / "lime")
    assert inspect(tmp_path).notes == ("val/ has no image of lime: its results leave them out",)


def test_names_that_look_alike_are_told(tmp_path):
    """An accent is one character where a Mac has not written the name, and two where it has."""
    names = ("caf\u00e9", "cafe\u0301", "tea  cup", "tea cup", "teacup")
    write_photos(tmp_path, 6, colours={name: (200, 40 * number, 40) for number, name in enumerate(names)})
    (note,) = inspect(tmp_path).notes
    assert note.endswith(": cafe\u0301 and caf\u00e9, tea  cup and tea cup")


def test_an_image_of_two_classes_is_told(tmp_path):
    write_photos(tmp_path, 6)
    shutil.copy(tmp_path / "lime" / "1.jpg", tmp_path / "plum" / "x.jpg")
    assert "1 image in more than one class" in inspect(tmp_path).describe()
    assert f"{tmp_path}/lime/1.jpg = {tmp_path}/plum/x.jpg" in inspect(tmp_path).describe()


def test_images_outside_of_class_folders_are_told(tmp_path):
    write_photos(tmp_path, 6)
    write_photo(tmp_path / "0.jpg", COLOURS["plum"], 0)
    with pytest.warns(UserWarning, match=r"left out 1 image outside of class folders, such as 0\.jpg") as told:
        inspect(tmp_path)
    assert {warning.filename for warning in told} == {__file__}  # the caller's line, not one of this package


def test_imbalance_is_told_with_the_remedy(tmp_path):
    write_photos(tmp_path, 5)
    assert "--class-weights" not in inspect(tmp_path).describe()
    write_photos(tmp_path, 15, colours={"plum": COLOURS["plum"]})
    assert "3.0 times the images of the smallest: --class-weights balanced" in inspect(tmp_path).describe()
    assert "--class-weights" not in inspect(tmp_path).describe(class_weights="balanced")


def test_folders_one_level_too_deep_are_told(tmp_path):
    """animals/cat, animals/dog, things/cup: the classes are animals and things, which may not be what was meant."""
    deep = {"animals/cat": (200, 40, 40), "animals/dog": (60, 190, 60), "things/cup": (90, 40, 160)}
    photos = inspect(write_photos(tmp_path, 6, colours=deep))
    assert photos.classes == ("animals", "things")
    assert "images in subfolders count for the class folder around them" in photos.describe()
    write_photo(tmp_path / "things" / "0.jpg", (1, 2, 3), 99)
    assert "in subfolders" not in inspect(tmp_path).describe()
