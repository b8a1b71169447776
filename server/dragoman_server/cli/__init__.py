"""The `dragoman` command: its subcommands, and the banner of `dragoman serve`.

A fifth of the gateway's code is here: doctor, explain, lint, replay and run are whole programs, which use the gateway's
parts, and explain what people get wrong before their first request.
"""
