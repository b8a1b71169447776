"""Check text for free-text tools against their grammars. Start with `check`; needs the extra `dragoman[grammar]`."""
