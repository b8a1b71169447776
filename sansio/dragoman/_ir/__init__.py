"""The representation in which the protocols meet: the request document, the events of a response, and the ledger.

With them: the legal order of events, whole responses, wrapped signatures, the undo, and the fast path.
"""
