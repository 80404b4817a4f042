"""What the simulated model says: a pure function of seed, prompt and choice.

Tokens are drawn by hashing, not by `random`, whose sequences are not promised to stay the same between Python versions;
so a test may compare an answer with a literal.
"""

import hashlib
from dataclasses import dataclass
from typing import Literal

Finish = Literal["stop", "length"]

# What a request that may not end by itself and names no cap is held to, as vLLM holds it to the model's length.
MODEL_LENGTH = 131_072
SHORTEST, LONGEST = 16, 64

_WORDS = """
the of and to in a is that it was for on are as with his they at be this from have or by one had not but what all were
when we there can an your which their said if do will each about how up out them then she many some so these would other
into has more two like him see time could no make than first been its who now people my made over did down only way find
gateway server token request stream queue limit proxy header body answer model engine slot batch cache memory latency
"""
# A word brings its own space, as in most vocabularies; Chinese characters and emoji (3 and 4 bytes of UTF-8) do not.
VOCABULARY: tuple[str, ...] = (
    *(f" {word}" for word in _WORDS.split()),
    *"的一是不了人我在有他这中大来上国你好世界，。",
    *"😀🚀🌊🔥👍",
)


@dataclass(frozen=True, slots=True)
class Answer:
    """One choice: `length` tokens, then `finish`."""

    key: bytes
    length: int
    finish: Finish

    def token(self, index: int) -> str:
        """Return the text of token `index`, counted from 0."""
        draw = hashlib.blake2b(index.to_bytes(4, "big"), key=self.key, digest_size=4).digest()
        text = VOCABULARY[int.from_bytes(draw, "big") % len(VOCABULARY)]
        return text.lstrip() if index == 0 else text

    def text(self) -> str:
        """Return the whole answer."""
        return "".join(self.token(index) for index in range(self.length))


def answer(seed: int, prompt: str, choice: int = 0, *, cap: int | None = None, ignore_eos: bool = False) -> Answer:
    """Decide one choice; it ends by itself ("stop") after 16 to 64 tokens unless `cap` is smaller ("length").

    A cap cuts the answer and never changes its beginning. With `ignore_eos` the answer has exactly `cap` tokens.
    """
    key = hashlib.blake2b(f"{seed}\0{choice}\0{prompt}".encode("utf-8", "surrogatepass"), digest_size=32).digest()
    limit = MODEL_LENGTH if cap is None else min(cap, MODEL_LENGTH)
    natural = SHORTEST + int.from_bytes(key[:2], "big") % (LONGEST - SHORTEST + 1)
    if ignore_eos or natural > limit:
        return Answer(key, limit, "length")
    return Answer(key, natural, "stop")


def count_tokens(text: str) -> int:
    """Count a prompt's tokens by the simulator's rule: one for every four bytes of UTF-8 begun."""
    return (len(text.encode("utf-8", "surrogatepass")) + 3) // 4
