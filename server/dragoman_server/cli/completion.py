"""Print the script with which a shell completes `dragoman`: commands, options, and the values that options may have."""

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands and options in SHELL.

    \b
    bash:  echo 'eval "$(dragoman completion bash)"' >> ~/.bashrc
    zsh:   echo 'eval "$(dragoman completion zsh)"' >> ~/.zshrc   (after compinit)
    fish:  dragoman completion fish > ~/.config/fish/completions/dragoman.fish
    """
    script = get_completion_class(shell)
    root = context.find_root()
    assert script is not None  # click has one for each of the choices
    assert root.info_name is not None
    # The variable in which click looks for a shell that completes.
    variable = f"_{root.info_name}_COMPLETE".upper().replace("-", "_")
    text = script(root.command, {}, root.info_name, variable).source()
    # click's script for fish cuts descriptions at their first comma.
    click.echo(text.replace('string split ","', 'string split -m 1 ","'))
