"""Find the small changes of code that `make mutants` tries: see OPERATORS.

Only code inside of functions is changed, where it does something that a test can see: no annotations, docstrings,
`__repr__`, assertions, f-strings (whose parts have no positions before Python 3.12) or texts of log lines. A change
replaces a few bytes of the file, and has a name that stays the same when the function moves to another file.
"""

import ast
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from types import CodeType
from typing import Any, TypeAlias

_COMMENT = re.compile(r"(^\s*|  )#.*$", re.MULTILINE)
_LOG_METHODS = {"critical", "debug", "error", "exception", "info", "log", "warning"}
_COMPARE: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}  # fmt: skip
_ARITHMETIC: dict[type[ast.AST], tuple[str, str]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "//"), ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "*"), ast.BitOr: ("|", "&"), ast.BitAnd: ("&", "|"),
}  # fmt: skip
_CALLS = {"all": "any", "endswith": "startswith", "max": "min"}
_CALLS |= {other: name for name, other in _CALLS.items()}


# The names of the fields that find a change again when it has moved to another file.
IDENTITY = ("qualname", "operator", "before", "after", "nth")


@dataclass(frozen=True, slots=True)
class Mutation:
    """A change of one place. `before` and `after`: the source lines that it is in, without comments and line breaks.

    nth: counts the changes of a function that are alike in all else.
    lines: the line where the statement begins, and the first and the last one of what is changed.
    start, end, text: the bytes that are replaced, and by what.
    """

    path: str
    qualname: str
    operator: str
    before: str
    after: str
    nth: int
    lines: tuple[int, int, int]
    start: int
    end: int
    text: str

    @property
    def identity(self) -> list[Any]:
        return [getattr(self, name) for name in IDENTITY]

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Source:
    """The bytes of a file, and where the nodes of its tree begin and end in them."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._lines = [0]
        for line in text.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def start(self, node: Any) -> int:
        return int(self._lines[node.lineno - 1] + node.col_offset)

    def end(self, node: Any) -> int:
        return int(self._lines[node.end_lineno - 1] + node.end_col_offset)

    def replace(self, node: ast.AST, text: str) -> "Edit":
        return self.start(node), self.end(node), text

    def between(self, left: ast.AST, right: ast.AST, operators: tuple[str, str]) -> Iterator["Edit"]:
        """Replace the first of the two words where it stands between two nodes."""
        begin = self.end(left)
        place = self.text.find(operators[0].encode(), begin, self.start(right))
        if place >= 0:
            yield place, place + len(operators[0]), operators[1]

    def lines(self, start: int, end: int) -> tuple[int, int]:
        """The bytes of the whole lines that a range of bytes touches."""
        first = self.text.rfind(b"\n", 0, start) + 1
        last = self.text.find(b"\n", end)
        return first, len(self.text) if last < 0 else last


Edit: TypeAlias = tuple[int, int, str]

# -- the table of changes ----------------------------------------------------------------------------------


def _comparison(node: ast.AST, source: Source) -> Iterator[Edit]:
    if isinstance(node, ast.Compare):
        for (left, right), operator in zip(pairwise([node.left, *node.comparators]), node.ops, strict=True):
            yield from source.between(left, right, _COMPARE[type(operator)])


def _arithmetic(node: ast.AST, source: Source) -> Iterator[Edit]:
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        yield from source.between(node.left, node.right, _ARITHMETIC[type(node.op)])
    elif isinstance(node, ast.AugAssign) and type(node.op) in _ARITHMETIC:
        yield from source.between(node.target, node.value, _ARITHMETIC[type(node.op)])


def _and_or(node: ast.AST, source: Source) -> Iterator[Edit]:
    if isinstance(node, ast.BoolOp):
        operators = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in pairwise(node.values):
            yield from source.between(left, right, operators)


def _not(node: ast.AST, source: Source) -> Iterator[Edit]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        start = source.start(node)
        yield start, start + len("not"), ""


def _condition(node: ast.AST, source: Source) -> Iterator[Edit]:
    """Always or never; a loop never, because an endless one is caught by the clock, not by a test."""
    if isinstance(node, ast.If | ast.IfExp):
        yield source.replace(node.test, "True")
        yield source.replace(node.test, "False")
    elif isinstance(node, ast.While):
        yield source.replace(node.test, "False")
    elif isinstance(node, ast.comprehension):
        for test in node.ifs:
            yield source.replace(test, "True")


def _constant(node: ast.AST, source: Source) -> Iterator[Edit]:
    if isinstance(node, ast.Constant):
        match node.value:
            case bool():
                yield source.replace(node, repr(not node.value))
            case int() | float():
                yield source.replace(node, repr(node.value + 1))
            case str():
                yield source.replace(node, '""' if node.value else '"x"')
            case bytes():
                yield source.replace(node, 'b""' if node.value else 'b"x"')


def _return(node: ast.AST, source: Source) -> Iterator[Edit]:
    if isinstance(node, ast.Return) and node.value is not None:
        yield source.replace(node.value, "None")


def _statement(node: ast.AST, source: Source) -> Iterator[Edit]:
    """Without it; not an assignment to a local variable, without which the function only crashes."""
    match node:
        case (
            ast.Expr()
            | ast.AugAssign()
            | ast.Delete()
            | ast.Raise()
            | ast.Continue()
            | ast.Break()
            | ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_])
        ):
            yield source.replace(node, "pass")


def _argument(node: ast.AST, source: Source) -> Iterator[Edit]:
    """Without one; not the first by place, which is seldom optional."""
    if isinstance(node, ast.Call):
        items = sorted([*node.args, *node.keywords], key=source.start)
        for before, item in pairwise(items):
            yield source.end(before), source.end(item), ""
        if items and isinstance(items[0], ast.keyword):
            yield (
                source.start(items[0]),
                source.start(items[1]) if len(items) > 1 else source.end(items[0]),
                "",
            )


def _call(node: ast.AST, source: Source) -> Iterator[Edit]:
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in _CALLS:
            end = source.end(node.func)
            yield end - len(name), end, _CALLS[name]


OPERATORS: dict[str, Callable[[ast.AST, Source], Iterator[Edit]]] = {
    "comparison": _comparison,
    "arithmetic": _arithmetic,
    "and/or": _and_or,
    "not": _not,
    "condition": _condition,
    "constant": _constant,
    "return None": _return,
    "no statement": _statement,
    "no argument": _argument,
    "other call": _call,
}

# -- where they apply --------------------------------------------------------------------------------------


def mutations(path: str, text: bytes) -> list[Mutation]:
    """All changes of a file, in its order. Some give the same code as before, or none that compiles: see differs()."""
    source = Source(text)
    found: list[Mutation] = []
    alike: dict[tuple[str, ...], int] = {}
    for node, scope, line in _running(ast.parse(text), (), False, 0):
        for operator, edits in OPERATORS.items():
            for start, end, new in edits(node, source):
                first, last = source.lines(start, end)
                before = _normalized(text[first:last])
                after = _normalized(text[first:start] + new.encode() + text[end:last])
                key = (".".join(scope), operator, before, after)
                nth = alike[key] = alike.get(key, -1) + 1
                changed = [text.count(b"\n", 0, place) + 1 for place in (start, end)]
                lines = (line, changed[0], changed[1])
                found.append(Mutation(path, *key, nth, lines, start, end, new))
    return found


def differs(text: bytes, mutation: Mutation) -> bool:
    """Return True if the changed file compiles, and not to the same code."""
    try:
        changed = compile(mutation.apply(text), mutation.path, "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return _shape(changed) != _shape(compile(text, mutation.path, "exec", dont_inherit=True))


def choose(found: Sequence[Mutation], texts: dict[str, bytes], seed: int, count: int) -> list[Mutation]:
    """Choose by chance that depends on the seed and on the changes' identities only; one per function.

    The operators take turns, because constants and arguments outnumber all others.
    """

    def rank(mutation: Mutation) -> bytes:
        return hashlib.sha256(repr((seed, mutation.identity)).encode()).digest()

    queues = {name: sorted((each for each in found if each.operator == name), key=rank) for name in OPERATORS}
    chosen: list[Mutation] = []
    taken: set[tuple[str, str]] = set()
    while len(chosen) < count and any(queues.values()):
        for queue in queues.values():
            while queue and len(chosen) < count:
                each = queue.pop(0)
                if (each.path, each.qualname) not in taken and differs(texts[each.path], each):
                    chosen.append(each)
                    taken.add((each.path, each.qualname))
                    break
    return chosen


def same(old: dict[str, Any], found: Sequence[Mutation]) -> Mutation | None:
    """Find the change of another run by its function and lines, and by its file if several are alike."""
    alike = [each for each in found if each.identity == [old[name] for name in IDENTITY]]
    alike = [each for each in alike if each.path == old["path"]] or alike
    alike = [each for each in alike if _stem(each.path) == _stem(old["path"])] or alike
    return alike[0] if len(alike) == 1 else None


def _stem(path: str) -> str:
    return Path(path).stem.lstrip("_")


def _normalized(text: bytes) -> str:
    """One line without comments, whose words may change while the code does not."""
    return " ".join(_COMMENT.sub("", text.decode()).split())


def _shape(code: CodeType) -> tuple[Any, ...]:
    """What a code object does, without the places in the file that it remembers."""
    constants = tuple(
        _shape(each) if isinstance(each, CodeType) else (type(each), repr(each)) for each in code.co_consts
    )
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars


def _running(
    node: ast.AST, scope: tuple[str, ...], inside: bool, line: int
) -> Iterator[tuple[ast.AST, tuple[str, ...], int]]:
    """Yield the nodes inside of functions, each with the names around it and the line where its statement begins."""
    if isinstance(node, ast.stmt):
        line = node.lineno
    if inside:
        yield node, scope, line
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        scope, inside = (*scope, node.name), inside or not isinstance(node, ast.ClassDef)
    elif isinstance(node, ast.Lambda):
        scope, inside = (*scope, "<lambda>"), True
    for child in _children(node):
        yield from _running(child, scope, inside, line)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.FunctionDef(name="__repr__") | ast.Assert() | ast.JoinedStr():
            return
        case ast.FunctionDef() | ast.AsyncFunctionDef() if any(
            re.search(r"\boverload\b", ast.unparse(each)) for each in node.decorator_list
        ):
            return
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            children: list[ast.AST | None] = [*node.body]
        case ast.Lambda():
            children = [node.body]
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            children = [*node.orelse]
        case ast.AnnAssign():
            children = [node.target, node.value]
        case ast.Call(func=ast.Attribute(attr=name)) if name in _LOG_METHODS:
            children = [node.func]
        case ast.Call(func=ast.Name(id="cast")):
            children = [*node.args[1:]]
        case _:
            children = [*ast.iter_child_nodes(node)]
    for child in children:
        if child is not None and not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):
            yield child
