"""Count lines of code, comments and docstrings by package: `make lines`.

A line of code is one with a token on it that is neither a comment nor part of a docstring; blank lines are none of the
three. The lines of code of each source have a budget; one that is over it says why in the docstring of its package.
Below the table: file names that the protocol folders share, names that a user imports, and what is too long.

    python tests/tools/code_lines.py [ROOT]     ROOT is a checkout, by default this one
"""

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

# Source -> the most lines of code that it is to have, None for no limit.
SOURCES = {"sansio/dragoman": 18_300, "server/dragoman_server": 19_200, "tests": 55_000, "docs": None}
# The core without the folder that it does not import.
LINT, BUDGET_WITHOUT_LINT = "lint", 16_200
SILENT = {
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.COMMENT,
    tokenize.ENCODING,
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
LONG_FILE, LONG_FUNCTION = 500, 60


@dataclass(frozen=True, slots=True)
class Count:
    """Lines of some modules, and the names of what in them is long."""

    modules: int = 0
    raw: int = 0
    code: int = 0
    comments: int = 0
    docstrings: int = 0
    long: tuple[str, ...] = ()

    def __add__(self, other: "Count") -> "Count":
        return Count(
            self.modules + other.modules,
            self.raw + other.raw,
            self.code + other.code,
            self.comments + other.comments,
            self.docstrings + other.docstrings,
            self.long + other.long,
        )


def docstring_lines(tree: ast.AST) -> set[int]:
    """Return the lines of all strings that stand as statements, those below an attribute included."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, DOCUMENTED)
        for statement in node.body
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if isinstance(statement.value.value, str)
        for line in range(statement.lineno, (statement.end_lineno or 0) + 1)
    }


def long_functions(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            if length > LONG_FUNCTION:
                yield f"{node.name} ({length})"


def count(path: Path) -> Count:
    text = path.read_text("utf-8")
    tree = ast.parse(text)
    docstrings = docstring_lines(tree)
    code: set[int] = set()
    comments: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in SILENT:
            code.update(range(token.start[0], token.end[0] + 1))
    raw = text.count("\n")
    names = tuple(long_functions(tree))
    if raw > LONG_FILE:
        names = (f"({raw} lines)", *names)
    long = tuple(f"{path.name}: {name}" for name in names)
    return Count(1, raw, len(code - docstrings), len(comments - code), len(docstrings), long)


def packages(source: Path) -> Iterator[tuple[Path, Count]]:
    """Yield each folder below `source` that has modules, with the count of those in it, not of those below."""
    for folder in (source, *sorted(each for each in source.rglob("*") if each.is_dir())):
        modules = sorted(folder.glob("*.py"))
        if modules:
            yield folder, sum(map(count, modules), Count())


def shared_files(protocols: Path) -> tuple[int, int]:
    """Return how many file names all folders of upstreams' protocols have, and how many names there are."""
    names = [
        {path.name for path in folder.glob("*.py")}
        for folder in protocols.glob("[!_]*/")
        if folder.name != "simple_chat" and folder.name != "__pycache__"
    ]
    return len(set.intersection(*names)), len(set.union(*names))


def public_names(package: Path) -> int:
    tree = ast.parse((package / "_api.py").read_text("utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return len(ast.literal_eval(node.value))
    return 0


def private_imports(files: Iterable[Path], package: str) -> Counter[str]:
    """Return how often `files` import a module of `package` of which a part begins with an underscore."""
    found: Counter[str] = Counter()
    for path in files:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                if name.startswith(f"{package}.") and "._" in name:
                    found[name] += 1
    return found


def print_row(name: str, row: Count, budget: int | None = None) -> None:
    shown = "" if budget is None else f"{budget:18}{' over' if row.code > budget else ''}"
    print(f"{name:44}{row.modules:8}{row.raw:8}{row.code:8}{row.comments:10}{row.docstrings:12}{shown}")


def main(root: Path) -> None:
    print(
        f"{'':44}{'modules':>8}{'raw':>8}{'code':>8}{'comments':>10}{'docstrings':>12}{'budget of code':>18}"
    )
    long: list[str] = []
    for source, budget in SOURCES.items():
        rows = {str(path.relative_to(root / source)): row for path, row in packages(root / source)}
        total = sum(rows.values(), Count())
        print_row(source, total, budget)
        if LINT in rows:
            rest = (row for name, row in rows.items() if name != LINT)
            print_row(f"{source} without {LINT}", sum(rest, Count()), BUDGET_WITHOUT_LINT)
        if source.startswith("s"):
            for name, row in rows.items():
                print_row(f"  {name}", row)
            long += total.long
    core = root / "sansio/dragoman"
    shared, names = shared_files(core / "protocols")
    server = sorted((root / "server/dragoman_server").rglob("*.py"))
    print(f"\nfile names that all protocols of upstreams have: {shared} of {names}")
    print(f"public names of the core: {public_names(core)}")
    print(
        f"imports of private modules of the core by the server: {private_imports(server, 'dragoman').total()}"
    )
    print(f"over {LONG_FILE} lines a file or {LONG_FUNCTION} a function: {', '.join(long) or 'none'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2])
