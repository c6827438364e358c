"""Errors for unknown names help: the nearest match and the whole list."""

import pytest

from regmixup.names import check_name, printable


def test_a_known_name_is_returned():
    assert check_name("method", "dnn", ["mixup", "dnn"]) == "dnn"


def test_an_unknown_name_comes_with_the_nearest_and_the_sorted_list():
    with pytest.raises(
        ValueError, match=r"^unknown method 'mixpu': did you mean 'mixup'\? Available: cutmix, dnn, mixup$"
    ):
        check_name("method", "mixpu", ["mixup", "dnn", "cutmix"])


def test_a_name_like_no_other_comes_with_the_list_alone():
    with pytest.raises(ValueError, match=r"^unknown method 'zzz': Available: dnn, mixup$"):
        check_name("method", "zzz", ["mixup", "dnn"])


def test_nothing_available_is_said():
    with pytest.raises(ValueError, match=r"^unknown method 'dnn': Available: none$"):
        check_name("method", "dnn", [])


def test_what_does_not_print_is_written_out():
    assert printable("α ± 1 [a]") == "α ± 1 [a]"
    assert printable("a\x1b[2J\x9b\u202eb\ud800") == r"a\x1b[2J\x9b\u202eb\ud800"
    assert printable("a\r\n\tb\u00a0c") == "a   b c"
    assert printable("a\nb\rc", keep="\n") == "a\nb c"
