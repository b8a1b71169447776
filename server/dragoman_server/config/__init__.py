"""Load the configuration from a file, the environment and the command line. Start with `loader`.

It is larger than a parser, because all problems are reported together, each with its file, line and key, which tomllib
does not tell, and because a reload must not take away what the running gateway needs.
"""
