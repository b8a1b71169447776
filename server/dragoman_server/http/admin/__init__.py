"""For the operator: accounts and their state, client keys, and reloads; a module for each subject."""
