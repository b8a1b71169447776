"""`dragoman top`: the requests, accounts and rates of a running gateway on a terminal, from its feed of events."""
