"""The endpoints. endpoint is the base of all; auth, browsers and errors are for requests that reach no endpoint."""
