"""What LLM APIs look like on the wire: paths, requests, answers, streams, usage and errors."""
