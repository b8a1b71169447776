"""`dragoman keys`: the keys of clients."""
