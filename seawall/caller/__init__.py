"""Who is calling: keys, user agents, and the prefilter on headers."""
