"""What the gate says about itself: metrics, and one log line a request."""
