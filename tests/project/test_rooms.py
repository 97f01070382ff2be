"""What the layer check of `make check` does not see: imports of the root package, and imports by string.

The order of the rooms and the exceptions to it stand in pyproject.toml, under tool.importlinter.
"""

import ast
import re
import tomllib
from functools import cache

import pytest
from paths import ROOT

SOURCE = ROOT / "src/bcnn"
NATIVE = {"_core": ["engine", "bench"], "_training": ["nets"]}  # the parts in C++, and the rooms that know them
# Imports by string: where, and the room that is meant.
BY_STRING = {
    ("cli/app.py", "cli"),  # verbs, loaded when they are used
    ("exports/targets.py", "exports"),  # likewise
    ("nets/fused_autograd.py", "_training"),  # which an install may lack
    ("nets/registry.py", "nets"),  # one file a network
}


@cache
def order():
    """Each room and the rooms that it may import."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["id"] == "rooms"]
    known, below = {}, []
    for layer in reversed(layers):
        rooms = layer.split(" | ")
        known |= {room: {room, *below} for room in rooms}
        below += rooms
    return known


def trees():
    for file in sorted(SOURCE.rglob("*.py")):
        name = str(file.relative_to(SOURCE))
        if name not in ("__init__.py", "__main__.py"):
            yield name, ast.parse(file.read_text(encoding="utf-8"))


def imported(node):
    """The modules of an import statement, `bcnn` being the root itself."""
    if isinstance(node, ast.Import):
        return [each.name for each in node.names]
    if isinstance(node, ast.ImportFrom) and node.module == "bcnn":
        rooms = {*order(), *NATIVE}
        return [f"bcnn.{each.name}" if each.name in rooms else "bcnn" for each in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module else []


def by_string(node):
    """The module that a string names, alone or as the beginning of a formatted one."""
    if isinstance(node, ast.JoinedStr) and node.values and isinstance(node.values[0], ast.Constant):
        found = re.match(r"(bcnn(\.\w+)+)\.$", str(node.values[0].value))  # f"bcnn.nets.{file}"
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        found = re.match(r"(bcnn(\.\w+)*)$", node.value)
    else:
        return None
    if not found or (found[1] == "bcnn"):  # the name of the project is no import
        return None
    return found[1] if found[1].split(".")[1] in {*order(), *NATIVE} else None


def loads_root(node):
    """Whether it is `import_module("bcnn")`."""
    called = isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__")
    return called and any(isinstance(each, ast.Constant) and each.value == "bcnn" for each in node.args)


def room(name):
    return name.split("/")[0].removesuffix(".py")


def test_the_order_lists_every_room():
    assert {room(name) for name, _ in trees()} == order().keys()


def test_no_room_imports_the_root_package_not_even_for_types():
    found = [
        f"{name}:{node.lineno}"
        for name, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom) and "bcnn" in imported(node)
    ]
    found += [f"{name}:{node.lineno}" for name, tree in trees() for node in ast.walk(tree) if loads_root(node)]
    assert not found, f"these import the root package; import from the room that has the name: {found}"


def test_relative_imports_are_not_used():  # they would hide a room from these tests
    assert not [
        f"{name}:{node.lineno}"
        for name, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level
    ]


def test_the_native_parts_are_known_to_their_rooms_only():
    for name, tree in trees():
        for node in ast.walk(tree):
            modules = imported(node) if isinstance(node, ast.Import | ast.ImportFrom) else [by_string(node) or ""]
            for module in modules:
                part = module.removeprefix("bcnn.")
                assert part not in NATIVE or room(name) in NATIVE[part], f"{name}:{node.lineno} imports {module}"


def test_imports_by_string_are_listed_and_keep_the_order():
    found = set()
    for name, tree in trees():
        for node in ast.walk(tree):
            if module := by_string(node):
                target = module.split(".")[1]
                found.add((name, target))
                assert target in NATIVE or target in order()[room(name)], f"{name}:{node.lineno}: {module}"
    assert found == BY_STRING


def test_loading_the_root_by_name_is_seen():
    assert loads_root(ast.parse("importlib.import_module('bcnn')", mode="eval").body)
    assert not loads_root(ast.parse("importlib.import_module('bcnn.nets')", mode="eval").body)


@pytest.mark.parametrize(
    ("statement", "modules"),
    [
        ("import bcnn", ["bcnn"]),
        ("from bcnn import load", ["bcnn"]),
        ("from bcnn import __version__, theory", ["bcnn", "bcnn.theory"]),
        ("from bcnn.base import files", ["bcnn.base"]),
    ],
)
def test_statements_are_read_as_python_reads_them(statement, modules):
    assert imported(ast.parse(statement).body[0]) == modules


@pytest.mark.parametrize(
    ("expression", "module"),
    [
        ("'bcnn.cli.app'", "bcnn.cli.app"),
        ("f'bcnn.nets.{file}'", "bcnn.nets"),
        ("'bcnn'", None),
        ("'bcnn.h'", None),
        ("'bcnn.cli is a room'", None),
    ],
)
def test_strings_that_name_a_module_are_found(expression, module):
    assert by_string(ast.parse(expression, mode="eval").body) == module
