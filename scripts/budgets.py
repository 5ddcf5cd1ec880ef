"""Check the sizes and habits that CONTRIBUTING.md asks for; the limits are in pyproject.toml.

Ruff checks complexity, statements and style. This file checks what ruff has no rule for, and what a
comment must not be able to switch off.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from repository import ROOT, files, relative

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
# what makes a reader hold a case in mind; `with` only says how long something lives
BLOCKS = (ast.If, *LOOPS, ast.Try, ast.TryStar, ast.Match)
OWN_PACKAGES = {"passback", "passback_client"}
CLASS = re.compile(r"^\s*class (\w+)", re.MULTILINE)
BROAD = {"Exception", "BaseException"}
NOUN_CLAUSE = re.compile(r"(?:What|Whether|Which|Who|Whoever|Whose|How|Where|That|When|Why)\b")
DOCUMENTED = (ast.Module, ast.ClassDef, *FUNCTIONS)

# the line, and what is wrong there
Finding = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Budget:
    """The table `tool.passback.budgets`; the lists are of files in which the habit is allowed."""

    file_lines: int
    function_lines: int
    positional_arguments: int
    nesting: int
    broad_except: list[str]
    late_import: list[str]
    sleep_in_tests: list[str]
    banned_words: list[str]


@dataclass(frozen=True)
class Module:
    name: str
    text: str
    tree: ast.Module

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Return the nodes of the tree, outer ones first."""
        return list(ast.walk(self.tree))

    @property
    def is_test(self) -> bool:
        return self.name.startswith("tests/")

    @property
    def is_public(self) -> bool:
        """Return True for a module that users import, or read to understand the product."""
        return self.name.startswith(("server/", "client_tools/", "scripts/", "benchmarks/"))

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        return (node for node in self.nodes if isinstance(node, FUNCTIONS))


def main() -> int:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["passback"]["budgets"]
    budget = Budget(**{key.replace("-", "_"): value for key, value in table.items()})
    failed = False
    texts = {relative(path): path.read_text() for path in files("*.py")}
    names = own_classes(texts.values())
    for name, text in texts.items():
        module = Module(name, text, ast.parse(text))
        for line, problem in sorted(check(module, budget, names)):
            print(f"{module.name}:{line}: {problem}")
            failed = True
    return 1 if failed else 0


def own_classes(texts: Iterable[str], /) -> set[str]:
    return {name for text in texts for name in CLASS.findall(text)}


def check(module: Module, budget: Budget, classes: set[str], /) -> Iterator[Finding]:
    yield from check_sizes(module, budget)
    # tests build values as rows of a table
    if not module.is_test:
        yield from check_positional_calls(module, budget, classes)
    if module.name not in budget.broad_except:
        yield from check_broad_excepts(module)
    if module.name not in budget.late_import:
        yield from check_late_imports(module)
    if module.is_public:
        yield from check_words(module, frozenset(budget.banned_words))
    if module.is_test:
        yield from check_patches(module)
        if module.name not in budget.sleep_in_tests:
            yield from check_sleeps(module)


def check_sizes(module: Module, budget: Budget) -> Iterator[Finding]:
    if (lines := module.text.count("\n")) > budget.file_lines:
        yield 1, f"{lines} lines; at most {budget.file_lines}"
    for function in module.functions():
        yield from check_function_sizes(function, budget)


def check_function_sizes(
    function: ast.FunctionDef | ast.AsyncFunctionDef, budget: Budget
) -> Iterator[Finding]:
    where = function.lineno
    lines = (function.end_lineno or where) - where + 1
    if lines > budget.function_lines:
        yield where, f"{function.name} has {lines} lines; at most {budget.function_lines}"
    named = [*function.args.posonlyargs, *function.args.args]
    count = len([one for one in named if one.arg not in {"self", "cls"}])
    if count > budget.positional_arguments:
        yield (
            where,
            f"{function.name} takes {count} arguments; at most {budget.positional_arguments}",
        )
    if (depth := nesting_depth(function)) > budget.nesting:
        yield where, f"{function.name} nests {depth} deep; at most {budget.nesting}"


def nesting_depth(node: ast.AST) -> int:
    """Return how deep blocks are nested below this node; a function inside counts for itself."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
            continue
        nests = isinstance(child, BLOCKS)
        if isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]:
            nests = False  # an elif
        deepest = max(deepest, nests + nesting_depth(child))
    return deepest


def check_words(module: Module, banned: frozenset[str]) -> Iterator[Finding]:
    """Check docstrings and names against the rules under Words in CONTRIBUTING.md."""
    for node in module.nodes:
        if not isinstance(node, (*DOCUMENTED, ast.arg)):
            continue
        line = getattr(node, "lineno", 1)
        name = node.arg if isinstance(node, ast.arg) else getattr(node, "name", "")
        words = [part.lower() for part in re.findall(r"[A-Z]?[a-z]+", name)]
        if isinstance(node, DOCUMENTED) and (docstring := ast.get_docstring(node)):
            if clause := NOUN_CLAUSE.match(docstring):
                yield line, f"a docstring begins with {clause[0]}; begin with a verb or a noun"
            words += re.findall(r"[a-z]+", docstring.lower())
        for word in sorted(banned.intersection(words)):
            yield line, f"the word {word!r} is not the field's; see Words in CONTRIBUTING.md"


def check_positional_calls(module: Module, budget: Budget, classes: set[str]) -> Iterator[Finding]:
    for node in module.nodes:
        if not isinstance(node, ast.Call) or len(node.args) <= budget.positional_arguments:
            continue
        if (name := last_name(node.func)) in {"cls", *classes}:
            problem = f"{name} is made from {len(node.args)} arguments by position"
            yield node.lineno, f"{problem}; at most {budget.positional_arguments}, name the rest"


def check_broad_excepts(module: Module) -> Iterator[Finding]:
    for node in module.nodes:
        if not isinstance(node, ast.ExceptHandler):
            continue
        names = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        if any(name is None or (isinstance(name, ast.Name) and name.id in BROAD) for name in names):
            yield node.lineno, "catches everything; only the places in pyproject.toml may"


def check_late_imports(module: Module) -> Iterator[Finding]:
    for function in module.functions():
        for node in ast.walk(function):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield node.lineno, f"{function.name} imports when it is called; import on top"


def check_sleeps(module: Module) -> Iterator[Finding]:
    for node in module.nodes:
        if isinstance(node, ast.Call) and last_name(node.func) == "sleep":
            yield node.lineno, "sleeps; wait for what should happen, with a bound"


def check_patches(module: Module) -> Iterator[Finding]:
    own = own_names(module)
    for node in module.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom) and "mock" in imported_names(node):
            yield node.lineno, "imports a mock library; use a real or a scripted part"
        if isinstance(node, ast.Call) and patches_own(node, own):
            yield node.lineno, "patches our own code; give it another part instead"


def imported_names(node: ast.Import | ast.ImportFrom) -> set[str]:
    names = {part for alias in node.names for part in alias.name.split(".")}
    return names | set((node.module or "").split(".") if isinstance(node, ast.ImportFrom) else ())


def own_names(module: Module) -> set[str]:
    """Return the names by which a module knows parts of our packages."""
    own = set(OWN_PACKAGES)
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OWN_PACKAGES:
            own |= {alias.asname or alias.name for alias in node.names}
    return own


def patches_own(call: ast.Call, own: set[str]) -> bool:
    if last_name(call.func) not in {"setattr", "delattr", "patch"} or not call.args:
        return False
    target = call.args[0]
    if isinstance(target, ast.Constant):
        return str(target.value).split(".")[0] in OWN_PACKAGES
    while isinstance(target, ast.Attribute):
        target = target.value
    return isinstance(target, ast.Name) and target.id in own


def last_name(function: ast.expr) -> str:
    match function:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


if __name__ == "__main__":
    sys.exit(main())
