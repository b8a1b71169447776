"""Passes over a request and stages of a response, between its reader and its writer. Start with `pipeline`."""
