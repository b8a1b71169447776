"""Model names: routes finds the upstream of a name, catalog collects all names.

others finds those that a request names besides its own. listing fetches the lists of upstreams, info reads them.
"""
