"""A simulated inference engine: vLLM's OpenAI API and metric names, answers made from a seed, faults on demand.

It stands in for an engine where a GPU would be a waste: in `seawall up`, in tests and in benchmarks. What it answers
and how long it takes follow from its settings and the request alone. `generate`, `request`, `answer` and `faults` are
pure; `engine` keeps slots and counters; `app` and `sending` are the HTTP shell around them.
"""
