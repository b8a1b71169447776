"""Compile grammars in Lark's syntax into productions for `earley`.

Lark parses the definition, by the grammar of its own syntax that it ships, and this module turns the tree into
productions. Lark's compiler is not used: it multiplies alternatives out, so that one line of `(a|b) (a|b) ...` takes
exponential time, and its dynamic lexer refuses terminals that may be empty, which the grammar of Codex's apply_patch
has. Here every group becomes a nonterminal, so the result is as large as the definition.

UnsupportedGrammar is raised for what the vendor's subset does not have: templates, imports from other places than
`common`, look-around in expressions. Such a grammar is not checked.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import lark
import re2

from dragoman_server.tool_grammar.earley import CFG, LiteralTerminal, Symbol, Terminal

# Symbols of one grammar, after repetitions such as `~1..100` have been written out.
_MAX_SYMBOLS = 20_000
# Characters of the expression of a terminal, after the terminals in it have been put in.
_MAX_EXPRESSION = 16 * 1024
# Bytes that RE2 may use for one expression.
_MAX_MEMORY = 1024 * 1024
# The nesting of groups in groups, and of terminals in terminals.
_MAX_DEPTH = 60

# Terminals of `common` that in Lark look behind or are lazy, which RE2 does not have.
_COMMON = {
    "ESCAPED_STRING": r'"(?:[^"\\\n]|\\.)*"',
    "C_COMMENT": r"/\*(?:[^*]|\*+[^*/])*\*+/",
}

_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", '"': '"', "\\": "\\"}
# The flags of expressions that RE2 has; u (Unicode) is always on.
_FLAGS = frozenset("ims")

# The expressions that `_literal` makes of strings in quotes, and the operators that make an expression unbounded.
_PLAIN = re.compile(r"\(\?:((?:\w|\\x\{[0-9a-f]+\})*)\)")
_PLAIN_CHARACTER = re.compile(r"\\x\{[0-9a-f]+\}|\w")
_REPEATS = re.compile(r"[*+]|,\}")

_Tree = lark.Tree[lark.Token]


class UnsupportedGrammar(Exception):
    """The definition is not a grammar, or uses something that cannot be checked here."""


def compile_expression(expression: str) -> Any:
    """Compile an expression with RE2, over bytes, for the longest match. Raises UnsupportedGrammar."""
    options = re2.Options()
    options.log_errors = False
    options.longest_match = True
    options.max_mem = _MAX_MEMORY
    try:
        return re2.compile(expression.encode("utf-8", "surrogatepass"), options)
    except re2.error:
        raise UnsupportedGrammar("an expression that cannot be checked in linear time") from None


@dataclass(frozen=True, slots=True)
class _Expression:
    """A terminal that is a regular expression."""

    compiled: Any
    unbounded: bool

    def end(self, text: bytes, place: int) -> int | None:
        found = self.compiled.match(text, place)
        return None if found is None else int(found.end())


def _terminal_of(expression: str) -> Terminal:
    plain = _PLAIN.fullmatch(expression)
    if plain is not None:
        return LiteralTerminal("".join(map(_decoded, _PLAIN_CHARACTER.findall(plain[1]))).encode())
    return _Expression(compile_expression(expression), unbounded=_REPEATS.search(expression) is not None)


def _decoded(character: str) -> str:
    return character if len(character) == 1 else chr(int(character[3:-1], 16))


def compile_grammar(definition: str) -> CFG:
    """Compile a definition into productions and terminals. Raises UnsupportedGrammar."""
    return _Compiler(_statements(definition)).grammar()


@lru_cache(maxsize=1)
def _parser() -> lark.Lark:
    return lark.Lark.open_from_package(
        "lark", "lark.lark", ["grammars"], parser="lalr", maybe_placeholders=False
    )


def _statements(definition: str) -> list[_Tree]:
    try:
        items = _parser().parse(definition + "\n").children
    except lark.exceptions.LarkError:
        raise UnsupportedGrammar("a definition that Lark cannot read") from None
    return [item for item in items if isinstance(item, lark.Tree)]


@lru_cache(maxsize=1)
def _common() -> dict[str, _Tree]:
    """Return the terminals of the library that Lark ships."""
    text = files("lark").joinpath("grammars/common.lark").read_text("utf-8")
    return {_name(item): _body(item) for item in _statements(text) if item.data == "token"}


def _name(item: _Tree) -> str:
    """Return the name of a rule or terminal, without the `!` and `?` of rules, which concern only trees."""
    return str(item.children[0]).lstrip("!?")


_PARAMS = ("rule_params", "token_params")


def _body(item: _Tree) -> Any:
    children: list[Any] = item.children
    if any(_is(each, kind) and each.children for kind in _PARAMS for each in children):
        raise UnsupportedGrammar("templates")
    return children[-1]


class _Compiler:
    """The compiler of one definition."""

    def __init__(self, statements: list[_Tree]) -> None:
        self._rules: dict[str, Any] = {}
        self._tokens: dict[str, Any] = {}
        self._ignored: list[Any] = []
        self._expressions: dict[str, str] = {}  # of named terminals
        self._productions: list[list[tuple[Symbol, ...]]] = [[]]
        self._numbers: dict[str, int] = {}  # of rules
        self._wanted: list[str] = []  # those of them that have no productions yet
        self._terminals: dict[str, Symbol] = {}  # by expression
        self._size = 0
        self._depth = 0
        for statement in statements:
            take = _STATEMENTS.get(statement.data)
            if take is None:
                raise UnsupportedGrammar(f"%{statement.data}")
            take(self, statement)

    def grammar(self) -> CFG:
        if "start" not in self._rules:
            raise UnsupportedGrammar("a grammar without the rule start")
        self._productions[0] = [(self._rule("start"),)]
        while self._wanted:
            name = self._wanted.pop()
            self._productions[self._numbers[name]] = self._alternatives(self._rules[name])
        ignored = [_terminal_of(self._expression(each)) for each in self._ignored]
        terminals = [_terminal_of(each) for each in self._terminals]
        return CFG(self._productions, terminals, ignored)

    # Statements.

    def take_rule(self, item: _Tree) -> None:
        self._rules[_name(item)] = _body(item)

    def take_token(self, item: _Tree) -> None:
        self._tokens[_name(item)] = _body(item)

    def take_ignore(self, item: _Tree) -> None:
        self._ignored.append(item.children[0])

    def take_import(self, item: _Tree) -> None:
        children: list[Any] = item.children
        path, *rest = children
        words = [_word(each) for each in path.children if isinstance(each, lark.Tree)]
        if words[0] != "common" or path.children[0] == ".":
            raise UnsupportedGrammar("an import from anywhere but common")
        if rest and _is(rest[0], "name_list"):
            for each in rest[0].children:
                self._import(_word(each), _word(each))
        elif len(words) == 2:
            self._import(words[1], _word(rest[0]) if rest else words[1])
        else:
            raise UnsupportedGrammar("an import")

    def _import(self, name: str, known_as: str) -> None:
        if name in _COMMON:
            self._expressions[known_as] = _COMMON[name]
        elif name in _common():
            self._expressions[known_as] = _Terminals(_common()).expression_of(name)
        else:
            raise UnsupportedGrammar("an import of something that common does not have")

    # Rules.

    def _rule(self, name: str) -> Symbol:
        """Return the nonterminal of a rule, which is compiled later, because rules may form long chains."""
        if name not in self._rules:
            raise UnsupportedGrammar("a rule that is not defined")
        if name not in self._numbers:
            self._numbers[name] = self._nonterminal([])
            self._wanted.append(name)
        return self._numbers[name]

    def _nonterminal(self, alternatives: list[tuple[Symbol, ...]]) -> Symbol:
        self._productions.append(alternatives)
        return len(self._productions) - 1

    def _alternatives(self, node: Any) -> list[tuple[Symbol, ...]]:
        branches = node.children if _is(node, "expansions") else [node]
        return [self._sequence(branch) for branch in branches]

    def _sequence(self, node: Any) -> tuple[Symbol, ...]:
        if _is(node, "alias"):  # the name that the alternative has in a tree
            node = node.children[0]
        parts = node.children if _is(node, "expansion") else [node]
        symbols = tuple([self._symbol(part) for part in parts])
        self._grow(len(symbols) + 1)
        return symbols

    def _symbol(self, node: Any) -> Symbol:
        if _is(node, "name"):
            word = _word(node)
            return self._terminal(node) if word.lstrip("_")[:1].isupper() else self._rule(word)
        if _is(node, "literal") or _is(node, "literal_range"):
            return self._terminal(node)
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise UnsupportedGrammar("groups that are nested too deeply")
        try:
            if _is(node, "expr"):
                return self._repeated(self._symbol(node.children[0]), *_bounds(node))
            if _is(node, "maybe"):
                return self._nonterminal([(), *self._alternatives(node.children[0])])
            if _is(node, "expansions") or _is(node, "expansion") or _is(node, "alias"):
                return self._nonterminal(self._alternatives(node))
        finally:
            self._depth -= 1
        raise UnsupportedGrammar("templates")

    def _repeated(self, symbol: Symbol, low: int, high: int | None) -> Symbol:
        self._grow(low + (2 if high is None else high - low) + 1)
        if high is None:
            # Left recursion: the parser keeps one item for it, however long the text is.
            more = self._nonterminal([])
            self._productions[more] = [(), (more, symbol)]
            return self._nonterminal([(*[symbol] * low, more)])
        optional = self._nonterminal([(), (symbol,)])
        return self._nonterminal([(*[symbol] * low, *[optional] * (high - low))])

    def _grow(self, symbols: int) -> None:
        self._size += symbols
        if self._size > _MAX_SYMBOLS:
            raise UnsupportedGrammar("a grammar that is too large")

    # Terminals.

    def _terminal(self, node: Any) -> Symbol:
        return self._terminals.setdefault(self._expression(node), ~len(self._terminals))

    def _expression(self, node: Any) -> str:
        return _Terminals(self._tokens, self._expressions).expression(node)


_STATEMENTS: dict[str, Callable[[_Compiler, _Tree], None]] = {
    "rule": _Compiler.take_rule,
    "token": _Compiler.take_token,
    "ignore": _Compiler.take_ignore,
    "import": _Compiler.take_import,
    "multi_import": _Compiler.take_import,
}


class _Terminals:
    """Turn terminals into regular expressions. known: the expressions that are finished."""

    def __init__(self, tokens: dict[str, Any], known: dict[str, str] | None = None) -> None:
        self._tokens = tokens
        self._known = {} if known is None else known
        self._depth = 0

    def expression_of(self, name: str) -> str:
        if name not in self._known:
            if name not in self._tokens:
                raise UnsupportedGrammar("a terminal that is not defined")
            self._known[name] = self.expression(self._tokens[name])
        return self._known[name]

    def expression(self, node: Any) -> str:
        self._depth += 1
        if self._depth > _MAX_DEPTH:  # reached by terminals that contain themselves too
            raise UnsupportedGrammar("terminals that are nested too deeply")
        text = self._text(node)
        self._depth -= 1
        if len(text) > _MAX_EXPRESSION:
            raise UnsupportedGrammar("an expression that is too long")
        return text

    def _text(self, node: Any) -> str:
        if _is(node, "name"):
            return f"(?:{self.expression_of(_word(node))})"
        if _is(node, "literal"):
            return _literal(str(node.children[0]))
        if _is(node, "literal_range"):
            first, last = (_unquoted(str(each)) for each in node.children)
            if len(first) != 1 or len(last) != 1 or first > last:
                raise UnsupportedGrammar("a range of something other than characters")
            return f"[{_code(first)}-{_code(last)}]"
        if _is(node, "expansions"):
            return f"(?:{'|'.join(map(self.expression, node.children))})"
        if _is(node, "expansion"):
            return "".join(map(self.expression, node.children))
        if _is(node, "maybe"):
            return f"(?:{self.expression(node.children[0])})?"
        if _is(node, "expr"):
            low, high = _bounds(node)
            return f"(?:{self.expression(node.children[0])}){_quantifier(low, high)}"
        raise UnsupportedGrammar("a terminal that contains something else")


def _is(node: Any, data: str) -> bool:
    return isinstance(node, lark.Tree) and node.data == data


def _word(node: Any) -> str:
    return str(node.children[0]) if isinstance(node, lark.Tree) else str(node)


_OPERATORS: dict[str, tuple[int, int | None]] = {"?": (0, 1), "*": (0, None), "+": (1, None)}


def _bounds(node: _Tree) -> tuple[int, int | None]:
    """Return how often the operand of an `expr` may be repeated."""
    _, operator, *more = node.children
    if str(operator) in _OPERATORS:
        return _OPERATORS[str(operator)]
    low = int(str(operator))
    high = int(str(more[0])) if more else low
    if not 0 <= low <= high <= _MAX_SYMBOLS:
        raise UnsupportedGrammar("a repetition that is too large")
    return low, high


def _quantifier(low: int, high: int | None) -> str:
    if high is None:
        return "+" if low else "*"
    return f"{{{low},{high}}}"


def _code(character: str) -> str:
    return f"\\x{{{ord(character):x}}}"


def _literal(text: str) -> str:
    """Return the expression for a string in quotes or an expression in slashes."""
    end = text.rindex(text[0])
    flags = text[end + 1 :]
    if text[0] == '"':
        escaped = "".join(char if char.isalnum() else _code(char) for char in _unquoted(text[: end + 1]))
        return f"(?i:{escaped})" if flags else f"(?:{escaped})"
    flags = flags.replace("u", "")
    if not _FLAGS.issuperset(flags):
        raise UnsupportedGrammar("a flag of an expression")
    return f"(?{flags}:{text[1:end]})"


def _unquoted(text: str) -> str:
    """Return the characters of a string in quotes."""
    return _ESCAPE.sub(_unescaped, text[1:-1])


def _unescaped(match: re.Match[str]) -> str:
    number = match[1] or match[2] or match[3]
    if number is None:
        return _ESCAPED.get(match[4], match[0])
    code = int(number, 16)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise UnsupportedGrammar("an invalid character")
    return chr(code)
