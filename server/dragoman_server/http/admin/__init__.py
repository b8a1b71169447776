"""For the operator: accounts, client keys, usage, events, metrics, reloads and the page; a module for each subject."""
