"""Model names: routes finds the upstream of a name, catalog collects all names.

listing fetches the lists of upstreams, info reads them.
"""
