"""Write the man page dragoman(1) from the help of the commands, in the macros of man(7)."""

import inspect
import textwrap
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import click

from dragoman_server.cli.commands import main
from dragoman_server.config.loader import CONFIG_VARIABLE, DEFAULT_FILE

PAGE = Path(__file__).parents[1] / "deploy" / "dragoman.1"

# Escaped, because roff prints a plain hyphen as a typographic one, which cannot be copied.
_ESCAPES = str.maketrans({"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"})

_EXIT_CODES = [
    ("0", "success; of a server: it was stopped by a signal"),
    ("1", "the server cannot start, or the command has found a problem"),
    ("2", "the configuration or the command line is wrong"),
]
_AFTER = f"""\
.SH FILES
.TP
.I {DEFAULT_FILE}
The configuration, in the working directory, or the file that the option
\\-\\-config or the variable {CONFIG_VARIABLE} names.
.SH ENVIRONMENT
Each option of
.B dragoman serve
has a variable, which its description names in brackets. The keys of known
providers, such as OPENAI_API_KEY, are enough to configure their upstreams.
"""


def page() -> str:
    """Return the whole page."""
    lines = [
        f'.TH DRAGOMAN 1 "" "dragoman {_text(version("dragoman"))}" "User Commands"',
        ".SH NAME",
        "dragoman \\- translate between LLM clients and upstreams of different protocols",
        ".SH SYNOPSIS",
        ".B dragoman",
        ".I COMMAND",
        "[\\fIOPTIONS\\fR] [\\fIARGUMENTS\\fR]",
        ".SH DESCRIPTION",
        *_paragraphs(main.help or ""),
        ".SH COMMANDS",
    ]
    root = click.Context(main, info_name="dragoman")
    for context in leaves(root):
        lines += _command(context)
    lines += [*_AFTER.splitlines(), ".SH EXIT STATUS"]
    for code, meaning in _EXIT_CODES:
        lines += [".TP", f".B {code}", _text(meaning)]
    return "\n".join(lines) + "\n"


def leaves(context: click.Context) -> Iterator[click.Context]:
    """Yield the commands that are no groups, in the order of the help."""
    group = context.command
    if not isinstance(group, click.Group):
        yield context
        return
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield from leaves(click.Context(command, info_name=name, parent=context))


def own_options(command: click.Command) -> tuple[bool, list[click.Option]]:
    """Return whether a command has the options of `dragoman serve`, and its others."""
    options = [each for each in command.params if isinstance(each, click.Option)]
    of_serve = main.commands["serve"].params
    if command is main.commands["serve"] or not all(each in options for each in of_serve):
        return False, options
    return True, [each for each in options if each not in of_serve]


def _command(context: click.Context) -> Iterator[str]:
    command = context.command
    yield f".SS {_text(context.command_path)} {_text(' '.join(command.collect_usage_pieces(context)))}"
    yield from _paragraphs(command.help or "")
    of_serve, options = own_options(command)
    if of_serve:
        yield from (".PP", "It has the options of", ".B dragoman serve" + ("\nand:" if options else "."))
    for option in options:
        record = option.get_help_record(context)
        if record is not None:
            yield from (".TP", f".B {_text(record[0])}")
            yield from _lines(record[1])


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the lines of a help text. As click does, keep the lines of a paragraph that begins with a backspace."""
    for number, paragraph in enumerate(inspect.cleandoc(text).split("\n\n")):
        if number:
            yield ".PP"
        if paragraph.startswith("\b\n"):
            yield ".nf"
            yield from (_line(line) for line in paragraph.splitlines()[1:])
            yield ".fi"
        else:
            yield from _lines(paragraph)


def _lines(text: str) -> Iterator[str]:
    yield from map(_line, textwrap.wrap(text, 78, break_long_words=False, break_on_hyphens=False))


def _line(text: str) -> str:
    """Return a line of text. One that begins like a request of roff gets something invisible before it."""
    escaped = _text(text)
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


def _text(text: str) -> str:
    return text.translate(_ESCAPES)
