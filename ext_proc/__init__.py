"""Bodies and streams: Envoy's external processing service."""
