"""Load the configuration from a file, the environment and the command line. Start with `loader`."""
