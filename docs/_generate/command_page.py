"""Write docs/commands.md, the help of each command as a page."""

import inspect
from collections.abc import Iterator
from pathlib import Path

import click
from man_page import leaves, own_options

from dragoman_server.cli.commands import main

PAGE = Path(__file__).parents[1] / "commands.md"
_INTRODUCTION = """\
# Commands

The help of each command, as `dragoman COMMAND --help` prints it; `man dragoman` has the same. What is in
brackets is the variable that does the same as the option.
"""


def page() -> str:
    """Return the whole page."""
    root = click.Context(main, info_name="dragoman")
    return "\n".join([_INTRODUCTION, *(line for each in leaves(root) for line in _command(each))])


def _command(context: click.Context) -> Iterator[str]:
    command = context.command
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"## `{context.command_path}`\n\n```text\n{context.command_path} {usage}\n```\n"
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b\n"):
            yield f"```text\n{paragraph.removeprefix(chr(8)).strip()}\n```\n"
        else:
            yield f"{_text(paragraph)}\n"
    of_serve, options = own_options(command)
    if of_serve:
        yield f"It has the options of [`dragoman serve`](#dragoman-serve){' and:' if options else '.'}\n"
    rows = [record for each in options if (record := each.get_help_record(context))]
    if rows:
        yield "| option | meaning |\n| --- | --- |"
        yield from (
            f"| `{names.replace('|', chr(92) + '|')}` | {_text(meaning)} |" for names, meaning in rows
        )
        yield ""


def _text(text: str) -> str:
    """Return prose of a help text in Markdown."""
    return "".join(f"\\{each}" if each in "*<|[" else each for each in text)
