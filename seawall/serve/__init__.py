"""Running the gate: settings, workers, health, drain, and the supervisor that keeps them."""
