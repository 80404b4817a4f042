"""The prefilter: Envoy's external authorization service, on headers only."""
