"""The repository's own shape: one list of source roots, one direction of imports."""

from __future__ import annotations

import ast
import functools
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
SOURCE_ROOTS = [".", "segments", "tools"]
MAY_IMPORT = {
    "segments/fmemory_segments": set[str](),
    "fmemory": {"fmemory_segments"},
    "tools/fmemory_tools": {"fmemory", "fmemory_segments"},
}
TEST_KINDS = {
    "benchmarks",
    "compat",
    "conformance",
    "crash",
    "fmemory",
    "properties",
    "repo",
    "segments",
    "stores",
    "tools",
    "typing",
}


def test_every_tool_sees_the_same_source_roots() -> None:
    assert CONFIG["hatch"]["build"]["dev-mode-dirs"] == SOURCE_ROOTS
    assert CONFIG["pytest"]["ini_options"]["pythonpath"] == SOURCE_ROOTS
    assert CONFIG["pyright"]["extraPaths"] == SOURCE_ROOTS
    assert CONFIG["ruff"]["src"] == SOURCE_ROOTS
    assert CONFIG["mypy"]["mypy_path"] == [f"$MYPY_CONFIG_FILE_DIR/{root}" for root in SOURCE_ROOTS]


def test_wheel_holds_exactly_the_three_packages() -> None:
    assert set(CONFIG["hatch"]["build"]["targets"]["wheel"]["packages"]) == set(MAY_IMPORT)


@pytest.mark.parametrize("folder", ["segments", "tools", "tests", "benchmarks"])
def test_plain_folder_is_not_a_package(folder: str) -> None:
    assert not (ROOT / folder / "__init__.py").exists()


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_package_says_that_it_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_point_downwards(package: str) -> None:
    ours = {Path(name).name for name in MAY_IMPORT}
    allowed = MAY_IMPORT[package] | {Path(package).name}
    wrong = [
        f"{path}:{line} imports {name}"
        for path, line, name in imports_of(ROOT / package)
        if (top := name.partition(".")[0]) in ours and top not in allowed
    ]
    assert wrong == []


def test_only_the_testing_package_imports_test_tools() -> None:
    wrong = [
        f"{path}:{line} imports {name}"
        for package in MAY_IMPORT
        for path, line, name in imports_of(ROOT / package)
        if name.partition(".")[0] in {"pytest", "hypothesis"}
        and not path.is_relative_to(ROOT / "fmemory" / "testing")
    ]
    assert wrong == []


def test_no_package_imports_the_testing_package() -> None:
    wrong = [
        f"{path}:{line} imports {name}"
        for package in MAY_IMPORT
        for path, line, name in imports_of(ROOT / package)
        if name.startswith("fmemory.testing")
        and not path.is_relative_to(ROOT / "fmemory" / "testing")
    ]
    assert wrong == []


def test_tests_lie_in_folders_of_a_known_kind() -> None:
    found = {path.relative_to(ROOT / "tests").parts[0] for path in ROOT.glob("tests/**/test_*.py")}
    assert found <= TEST_KINDS


def test_a_package_init_holds_only_docstring_imports_and_sorted_names() -> None:
    for package in MAY_IMPORT:
        for path in sorted((ROOT / package).rglob("__init__.py")):
            body = ast.parse(path.read_text()).body
            assert all(may_stand_in_init(node) for node in body), path
            names = names_of(body)
            # Constants, then types, then functions, each by the alphabet: ruff's order.
            kinds = [(not one.isupper(), not one[:1].isupper(), one) for one in names]
            assert kinds == sorted(kinds), path


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_no_file_of_a_package_is_longer_than_800_lines(package: str) -> None:
    lengths = {
        path.name: len(path.read_text().splitlines()) for path in (ROOT / package).rglob("*.py")
    }
    assert {name: length for name, length in lengths.items() if length > 800} == {}


def imports_of(folder: Path) -> Iterator[tuple[Path, int, str]]:
    """File, line and module of every absolute import below a folder."""
    for path in sorted(folder.rglob("*.py")):
        yield from ((path, line, name) for line, name in imports_in(path))


@functools.cache
def imports_in(path: Path) -> list[tuple[int, str]]:
    """Line and module of every absolute import of a file; parsed once for all tests."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append((node.lineno, node.module or ""))
    return found


def may_stand_in_init(node: ast.stmt) -> bool:
    """A docstring or call (assert rewriting), an import, an alias, or dunder names."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Expr():
            return True
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return name.startswith("__") or isinstance(value, ast.Name)
        case _:
            return False


def names_of(body: list[ast.stmt]) -> list[str]:
    """What `__all__` lists."""
    for node in body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=items)):
                return [str(one.value) for one in items if isinstance(one, ast.Constant)]
            case _:
                continue
    return []
