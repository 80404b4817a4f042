"""Which reader an answer gets, by what its headers say: the request doesn't tell what the answer is."""

from seawall.llm.answer import Answer, Plan
from seawall.llm.inflate import CODINGS, Inflater
from seawall.llm.stream_answer import StreamAnswer
from seawall.llm.whole_answer import WholeAnswer

PLAIN = frozenset({"", "identity"})
"""Content codings that leave a body as it is."""


def reader_of(plan: Plan, status: str, content_type: str, content_encoding: str) -> Answer | None:
    """Give what reads and changes an answer with these headers; None where nothing in it is looked at.

    Only 2xx are: an error of the engine goes on as it is. An answer in a coding that can't be read passes.
    """
    kind = content_type.partition(";")[0].strip().lower()
    is_stream = kind == "text/event-stream"
    if not status.startswith("2") or not (is_stream or kind == "application/json"):
        return None
    if not (plan.count or (plan.changes_stream if is_stream else plan.changes_whole)):
        return None
    coding = content_encoding.strip().lower()
    if coding in PLAIN:
        inflater = None
    elif coding in CODINGS:
        inflater = Inflater(coding)
    else:
        return Answer(plan, unread=True)
    return StreamAnswer(plan, inflater) if is_stream else WholeAnswer(plan, inflater)
