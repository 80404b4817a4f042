"""Who may be in flight: slots of a pool, and what holds when the store that counts them is gone."""
