"""Errors for unknown names help: the nearest match and the whole list."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import regmixup
from regmixup.names import as_utf8, check_name, printable, warn_user


def test_a_known_name_is_returned():
    assert check_name("method", "dnn", ["mixup", "dnn"]) == "dnn"


@pytest.mark.parametrize(
    ("name", "names", "told"),
    [
        ("mixpu", ["mixup", "dnn", "cutmix"], r"'mixpu': did you mean 'mixup'\? Available: cutmix, dnn, mixup"),
        ("zzz", ["mixup", "dnn"], "'zzz': Available: dnn, mixup"),
        ("dnn", [], "'dnn': Available: none"),
    ],
    ids=["like another", "like no other", "nothing available"],
)
def test_an_unknown_name_comes_with_the_nearest_if_any_and_the_sorted_list(name, names, told):
    with pytest.raises(ValueError, match=f"^unknown method {told}$"):
        check_name("method", name, names)


def test_what_does_not_print_is_written_out():
    assert printable("α ± 1 [a]") == "α ± 1 [a]"
    assert printable("a\x1b[2J\x9b\u202eb\ud800") == r"a\x1b[2J\x9b\u202eb\ud800"
    assert printable("a\r\n\tb\u00a0c") == "a   b c"
    assert printable("a\nb\rc", keep="\n") == "a\nb c"


def test_the_name_of_a_file_is_shown_alike_in_every_locale():
    for name in ("é", b"\xe9", b"\xc2\x9b", "日本"):
        raw = name if isinstance(name, bytes) else name.encode()
        shown = raw.decode("utf-8", "backslashreplace")
        for locale in ("ascii", "utf-8"):
            assert as_utf8(raw.decode(locale, "surrogateescape")) == shown
    assert printable(b"caf\xe9 \xc2\x9b".decode("ascii", "surrogateescape")) == r"caf\xe9 \x9b"


def test_a_warning_names_the_users_line_also_beside_the_package():
    for name in ("regmixup_mine/loop.py", "loop.py"):
        file = str(Path(regmixup.__file__).parents[1] / name)
        with pytest.warns(UserWarning, match="look") as told:
            exec(compile("warn_user('look')", file, "exec"), {"warn_user": warn_user})
        assert told[0].filename == file


@pytest.mark.parametrize("between", ["/", "/./", "//"])
def test_a_warning_names_the_users_line_however_the_path_of_the_package_is_written(between):
    """As after sys.path.insert(0, "./src"), which Python keeps as it is."""
    package = Path(regmixup.__file__).parent
    spec = spec_from_file_location("names_again", f"{package.parent}{between}{package.name}/names.py")
    again = module_from_spec(spec)
    spec.loader.exec_module(again)
    with pytest.warns(UserWarning, match="look") as told:
        again.warn_user("look")
    assert told[0].filename == __file__
