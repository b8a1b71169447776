"""The `dragoman` command: its subcommands, and the banner of `dragoman serve`."""
