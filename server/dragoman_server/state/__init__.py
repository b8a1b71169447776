"""What outlives a request. Each store is a small Protocol with several implementations; none is needed to serve."""
