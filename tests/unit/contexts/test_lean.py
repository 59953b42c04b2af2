"""What a zygote leaves out of msgspec at first is there whenever somebody wants it."""

import subprocess
import sys

START = "import sys; from sapwood.contexts import lean; lean.import_msgspec(); import msgspec; "


def run(code: str) -> str:
    """Run code in a fresh interpreter that has imported msgspec leanly; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}; {START}{code}"],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return done.stdout.strip()


def test_what_agents_do_not_use_is_left_out() -> None:
    code = "print({'msgspec._json_schema', 'platform', 'typing_extensions'} & sys.modules.keys())"
    assert run(code) == "set()"


def test_first_use_imports_all_of_it() -> None:
    code = (
        "print(msgspec.json.decode(b'[1]'), msgspec.yaml.__file__ is not None, "
        "sys.modules['msgspec.inspect'].type_info is msgspec.inspect.type_info)"
    )
    assert run(code) == "[1] True True"


def test_names_imported_from_a_module_that_is_not_there_yet() -> None:
    assert run("from msgspec.json import encode; print(encode([1]))") == "b'[1]'"


def test_complete_leaves_the_modules_themselves() -> None:
    code = (
        "lean.complete(); "
        "print(*(type(sys.modules[name]).__name__ == 'module' for name in lean.LATER), "
        "*(getattr(msgspec, name[8:]) is sys.modules[name] for name in lean.LATER))"
    )
    assert run(code) == " ".join(["True"] * 8)


def test_modules_that_were_there_stay() -> None:
    code = (
        "import platform; from sapwood.contexts import lean; lean.import_msgspec(); "
        "import sys; print(sys.modules['platform'] is platform, platform.machine() != '')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, text=True
    )
    assert done.stdout.strip() == "True True"


def test_modules_that_were_spared_one_get_it_in_the_end() -> None:
    code = (
        "import uuid; lean.complete(); import platform; "
        "print(getattr(uuid, 'platform', platform) is platform)"
    )
    assert run(code) == "True"
