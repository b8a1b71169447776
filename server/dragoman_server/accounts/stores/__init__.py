"""Account stores: the interface in base, one module per place of the data, and resilient around those that may fail."""
