"""For the operator: accounts and their state, client keys, what was used, and reloads; a module for each subject."""
