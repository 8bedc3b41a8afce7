"""The repository's own rules: what its files may say, how large and how documented they are, and what CI runs."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator

import pytest

from tests.repo.tree import PACKAGE, ROOT, files, modules

HARD_CAP = 500
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "misc", "common", "stuff", "tools"}
# Split so that this file doesn't say what it forbids.
WORKPLACE = ("../" + "shared", "/" + "work/", "/opt/" + "wheels", "/opt/" + "pypi")
WORKPLACE_PATTERNS = (r"(?<![\w)\]])\.lib" + r"rary\b",)
REGISTRY_HOSTS = (
    "pypi" + ".org",
    "python" + "hosted.org",
    "download.py" + "torch.org",
    "pypi." + "nvidia.com",
    "registry." + "npmjs.org",
    "deb." + "debian.org",
    "proxy." + "golang.org",
    "huggingface" + ".co",
)


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


# ---------------------------------------------------------------------------------------------- what files may say


def texts() -> Iterator[tuple[str, str]]:
    for path in files():
        try:
            yield path.relative_to(ROOT).as_posix(), path.read_text("utf-8")
        except UnicodeDecodeError:
            continue


def test_no_file_names_the_place_where_it_was_written() -> None:
    pattern = re.compile("|".join([*map(re.escape, WORKPLACE), *WORKPLACE_PATTERNS]))
    found = [f"{name}: {match.group()}" for name, text in texts() if (match := pattern.search(text))]
    assert not found, found


def test_no_file_names_a_package_registry() -> None:
    """Installers use whatever index the user's own configuration names."""
    found = [f"{name}: {host}" for name, text in texts() for host in REGISTRY_HOSTS if host in text]
    assert not found, found


# ----------------------------------------------------------------------------------------------------- the package


def test_no_module_is_longer_than_the_hard_cap() -> None:
    lengths = {name: len(read(name).splitlines()) for name in modules()}
    assert not {name: lines for name, lines in lengths.items() if lines > HARD_CAP}


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert not [name for name in modules() if name.removesuffix(".py").rsplit("/", 1)[-1].strip("_") in VAGUE_NAMES]


def test_every_package_folder_has_an_init() -> None:
    folders = {name.rsplit("/", 1)[0] for name in modules()}
    assert not [folder for folder in folders if f"{folder}/__init__.py" not in modules()]


def test_every_module_has_a_docstring() -> None:
    assert not [name for name, tree in modules().items() if not (ast.get_docstring(tree) or "").strip()]


def undocumented(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    """Public functions, classes and methods without a docstring. An overload or a setter shares its sibling's."""
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or node.name.startswith("_"):
            continue
        decorators = {ast.unparse(decorator).rsplit(".", 1)[-1] for decorator in node.decorator_list}
        if decorators & {"overload", "override", "setter", "deleter"}:
            continue
        if not (ast.get_docstring(node) or "").strip():
            yield f"{prefix}{node.name}"
        if isinstance(node, ast.ClassDef):
            yield from undocumented(node.body, f"{prefix}{node.name}.")


def test_every_public_name_has_a_docstring() -> None:
    assert not [missing for name, tree in modules().items() for missing in undocumented(tree.body, f"{name}: ")]


def declared_all(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            assert isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
            return list(ast.literal_eval(node.value))
    return None


def test_a_package_that_exports_names_says_so_in_all() -> None:
    silent = [
        name
        for name, tree in modules().items()
        if name.endswith("/__init__.py")
        and any(isinstance(node, ast.ImportFrom) and node.module != "__future__" for node in tree.body)
        and declared_all(tree) is None
    ]
    assert not silent


def test_all_names_exist_once() -> None:
    exported = {name: names for name, tree in modules().items() if (names := declared_all(tree)) is not None}
    assert not [name for name, names in exported.items() if len(names) != len(set(names))]
    dotted = {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): names for name, names in exported.items()
    }
    # In a process of its own: importing an adapter or the mutants here would change what other tests find registered.
    probe = (
        "import importlib, json, sys\n"
        "wanted = json.load(sys.stdin)\n"
        "found = {name: importlib.import_module(name) for name in wanted}\n"
        "print([f'{name}.{member}' for name in wanted for member in wanted[name] if not hasattr(found[name], member)])"
    )
    command = [sys.executable, "-c", probe]
    answer = subprocess.run(command, cwd=ROOT, input=json.dumps(dotted), capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stdout.strip()) == (0, "[]"), answer.stdout + answer.stderr


def test_importing_specfuzz_imports_nothing_heavy() -> None:
    heavy = {"torch", "triton", "hypothesis", "msgspec", "click", "rich"}
    probe = f"import sys, specfuzz; print(sorted({heavy!r} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


# --------------------------------------------------------------------------------------------------- CI and habits


def test_the_workflow_is_a_copy_of_ci_yml() -> None:
    assert read("CI.yml") == read(".github/workflows/ci.yml")


def test_ci_calls_only_dev() -> None:
    lines = re.findall(r"^\s*(?:- )?run:(.*)$", read("CI.yml"), re.MULTILINE)
    assert lines, "CI.yml has no run line"
    assert not [line for line in lines if not re.fullmatch(r" \./dev [\w -]+", line)]


def test_ci_and_documents_name_only_verbs_that_dev_has() -> None:
    verbs = set(
        re.findall(r"\./dev (\w+)", read("CI.yml") + read(".ci/run") + read("README.md") + read("CONTRIBUTING.md"))
    )
    usage = subprocess.run([str(ROOT / "dev"), "help"], capture_output=True, text=True, check=True).stdout
    assert verbs <= set(re.findall(r"^  (\w+) ", usage, re.MULTILINE)) | {"help"}


def test_an_unknown_dev_verb_is_wrong_use() -> None:
    answer = subprocess.run([str(ROOT / "dev"), "tset"], capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert "unknown verb 'tset'" in answer.stderr and not answer.stdout


def test_the_quick_start_is_two_commands() -> None:
    quick_start = re.search(r"## Quick start\n(.*?)\n## ", read("README.md"), re.DOTALL)
    assert quick_start is not None
    block = re.search(r"```(?:sh|console)\n(.*?)```", quick_start.group(1), re.DOTALL)
    assert block is not None
    commands = [line.split("#")[0].strip() for line in block.group(1).splitlines() if line.strip()]
    assert commands == ["./dev demo", "./dev test"]


@pytest.mark.parametrize(("name", "most"), [("README.md", 120), ("ARCHITECTURE.md", 60)])
def test_the_documents_stay_short(name: str, most: int) -> None:
    assert len(read(name).splitlines()) <= most


def test_relative_links_of_the_documents_lead_somewhere() -> None:
    dead = [
        f"{path.name}: {target}"
        for path in files()
        if path.suffix == ".md"
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", path.read_text("utf-8"))
        if not (path.parent / target).exists()
    ]
    assert not dead


def test_the_changelog_and_the_package_know_the_same_version() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    newest = re.search(r"^## (\d+\.\d+\.\d+)", read("CHANGELOG.md"), re.MULTILINE)
    assert newest is not None and newest.group(1) == project["version"]


def test_scripts_are_executable_and_strict() -> None:
    for name in ("dev", ".ci/run"):
        assert (ROOT / name).stat().st_mode & 0o111, name
        assert "set -euo pipefail" in read(name), name


def test_the_package_is_marked_as_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()
