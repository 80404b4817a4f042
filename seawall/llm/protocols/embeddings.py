"""OpenAI embeddings (`/v1/embeddings`): nothing is generated and nothing streams."""

from collections.abc import Iterator

from seawall.llm.protocols.contract import Endpoint, Family, Json, Text, strings


def texts(body: Json) -> Iterator[Text]:
    """The input or inputs, where they are no token ids."""
    yield from strings(body.get("input"), ("input",))


EMBEDDINGS = Endpoint("embeddings", Family.OPENAI, True, (), None, ("input",), texts=texts)
