"""Tables of path and label: read as folders are, and refused with all that is wrong in them."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from regmixup.data import label_table, load
from regmixup.data.roles import validation_of


@pytest.fixture
def folder(tmp_path):
    """Ten images in two folders that say nothing about their classes."""
    for number in range(10):
        path = tmp_path / f"day{number % 2}" / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(np.full((4, 5, 3), 20 * number, np.uint8)).save(path)
    return tmp_path


def write(folder, *rows, header="path,label", name="labels.csv", encoding="utf-8"):
    path = folder / name
    path.write_text("\n".join([header, *rows]) + "\n", encoding=encoding)
    return f"folder:{path}"


ROWS = [f"day{n % 2}/{n}.png,{'cat' if n < 5 else 'dog'}" for n in range(10)]


def test_a_table_labels_files_whatever_their_folders_are(folder):
    images = load(write(folder, *reversed(ROWS)))
    assert images.classes == ("cat", "dog")
    named = {Path(path).relative_to(folder).as_posix(): path for path in images.paths}
    labels = dict(zip(images.paths, images.labels.tolist(), strict=True))
    assert {name: images.classes[labels[path]] for name, path in named.items()} == dict(r.split(",") for r in ROWS)


def test_columns_may_come_in_any_order_with_a_mark_of_the_encoding_and_quotes(folder):
    name = write(folder, '"cat, small",day0/0.png', "dog,./day1/1.png", header="Label, Path", encoding="utf-8-sig")
    assert load(name).classes == ("cat, small", "dog")


def test_a_table_has_parts_and_its_labels_are_part_of_its_identity(folder):
    name = write(folder, *ROWS)
    train, validation = load(f"{name}/train-60"), load(validation_of(f"{name}/train-60"))
    assert (len(train), len(validation)) == (6, 4)
    assert not set(train.paths) & set(validation.paths)
    before = load(name).fingerprint
    assert load(write(folder, *reversed(ROWS))).fingerprint == before  # their order changes nothing
    write(folder, ROWS[0].replace("cat", "dog"), *ROWS[1:])
    assert load(name).fingerprint != before


def test_all_that_is_wrong_is_told_at_once_with_lines(folder):
    name = write(
        folder, *ROWS, "day0/0.png,dog", "day0/0.png,cat", "day0/gone.png,cat", "/etc/passwd.png,cat", "../x.png,cat",
        "day0/a/../0.png,cat", "day0/0.png,", ",cat", "day0", "labels.csv,cat", "", "x\0.png,cat",
        f"{'y' * 5000}.png,cat",
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"labels\.csv: ") as error:
        load(name)
    assert str(error.value).removeprefix(f"{name}: ").split("; ") == [
        "1 row of labels.csv must not give a file a second label: day0/0.png in line 12",
        "3 rows of labels.csv must name files that exist: day0/gone.png in line 14, x\\x00.png in line 23, "
        f"{'y' * 5000}.png in line 24",
        "3 rows of labels.csv must have paths below its folder, without / in front and without ..: /etc/passwd.png in "
        "line 15, ../x.png in line 16, day0/a/../0.png in line 17",
        "3 rows of labels.csv must have a path and a label: day0/0.png in line 18, nothing in line 19, day0 in line 20",
        f"1 row of labels.csv must name image files ({', '.join(label_table.EXTENSIONS)}): labels.csv in line 21",
    ]


@pytest.mark.parametrize(
    ("rows", "changes", "message"),
    [
        ([], {}, "must have rows below its header"),
        (ROWS, {"header": "file;class"}, r"columns path and label, found \['file;class'\]"),
        (ROWS, {"header": "path,label,path"}, "columns path and label"),
        (["day0/0.png,caf\xe9"], {"encoding": "latin-1"}, "labels.csv as a CSV table in UTF-8"),
        ([f"day0/0.png,{'x' * 200_000}"], {}, "larger than field limit"),
        (['day0/0.png,"cat'], {}, "unexpected end of data"),
    ],
)
def test_what_is_no_such_table_is_refused(folder, rows, changes, message):
    with pytest.raises(ValueError, match=message):
        load(write(folder, *rows, **changes))


def test_a_label_with_a_comma_must_have_quotes(folder):
    """Else the part before the comma would be the class, and Paris, France one with Paris, Texas."""
    with pytest.raises(ValueError, match=r"1 row of .* at most 2 fields, with quotes .*: day0/2\.png in line 4$"):
        load(write(folder, *ROWS[:2], "day0/2.png,Paris, Texas"))
    assert load(write(folder, *(f"{row},, " for row in ROWS))).classes == ("cat", "dog")  # as spreadsheets write it


def test_columns_that_are_not_used_are_told(folder):
    """A column `split`, for example, decides nothing here."""
    name = write(folder, *(f"{row},train" for row in ROWS), header="path,label,split")
    with pytest.warns(UserWarning, match="columns beside path and label are not used: split"):
        load(name)
