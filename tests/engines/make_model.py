"""Write a small llama GGUF with seeded random weights and a vocabulary of our own; nothing is downloaded.

    make_model.py OUT.gguf [--size tiny|small] [--seed N]

The weights are random but for one trick: dimension 0 of the residual stream is a constant, so column 0 of the output
matrix is a bias for each token. With it whole words, Chinese characters and emoji are likely, pieces of words and
control tokens are not, and the end of the turn comes about once in forty tokens.
"""

import argparse

import gguf
import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]

# hidden, layers, heads, feed-forward; `tiny` makes thousands of tokens a second on a slow core, `small` 30 to 200
SIZES = {"tiny": (64, 2, 2, 128), "small": (512, 8, 8, 1536)}

WORDS = """
the of and to in a is that it was for on are as with his they at be this from have or by one had not but what all were
when we there can an your which their said if do will each about how up out them then she many some so these would other
gateway server token request stream queue limit proxy header body answer model engine slot batch cache memory latency
"""
CHINESE = "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动同工也能你好世界，。！？"
EMOJI = "😀🚀🌊🔥👍🎉💡🐧🧪📈"
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:;\"'()[]{}<>/\\|@#$%^&*-_=+`~"

TEMPLATE = """{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"""

NEVER, RARELY, END_OF_TURN = -40.0, -8.0, 3.6  # logits


def vocabulary() -> dict[str, tuple[float, gguf.TokenType, float]]:
    """Return score, type and bias by text, in the manner of SentencePiece with byte fall-back."""
    kind = gguf.TokenType
    tokens = {
        "<unk>": (0.0, kind.UNKNOWN, NEVER),
        "<s>": (0.0, kind.CONTROL, NEVER),
        "</s>": (0.0, kind.CONTROL, NEVER),
    }
    tokens |= {f"<0x{byte:02X}>": (0.0, kind.BYTE, NEVER) for byte in range(256)}
    tokens["<|im_start|>"] = (0.0, kind.CONTROL, NEVER)
    tokens["<|im_end|>"] = (0.0, kind.CONTROL, END_OF_TURN)
    tokens |= dict.fromkeys("▁" + LETTERS, (-2000.0, kind.NORMAL, RARELY))
    for word in WORDS.split():
        # The tokenizer merges from the left: a word can be reached only if each of its beginnings is a token too.
        for end in range(2, len(word) + 2):
            tokens.setdefault(f"▁{word}"[:end], (-1.0 - 0.01 * len(tokens), kind.NORMAL, RARELY))
        score, _, _ = tokens[f"▁{word}"]
        tokens[f"▁{word}"] = (score, kind.NORMAL, 0.0)
    tokens |= dict.fromkeys(".,!?" + CHINESE + EMOJI, (-2000.0, kind.NORMAL, 0.0))
    return tokens


def describe(writer: gguf.GGUFWriter, size: str, tokens: dict[str, tuple[float, gguf.TokenType, float]]) -> None:
    """Write what is not a weight: architecture, tokenizer, chat template."""
    hidden, layers, heads, feed_forward = SIZES[size]
    ids = {text: index for index, text in enumerate(tokens)}
    writer.add_name(f"seawall-test-{size}")
    writer.add_vocab_size(len(tokens))
    writer.add_context_length(131072)
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(feed_forward)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_rope_dimension_count(hidden // heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(list(tokens))
    writer.add_token_scores([score for score, _, _ in tokens.values()])
    writer.add_token_types([int(kind) for _, kind, _ in tokens.values()])
    writer.add_bos_token_id(ids["<s>"])
    writer.add_eos_token_id(ids["<|im_end|>"])
    writer.add_eot_token_id(ids["<|im_end|>"])
    writer.add_unk_token_id(ids["<unk>"])
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(TEMPLATE)


def weights(size: str, seed: int, bias: Matrix) -> dict[str, Matrix]:
    """Return all tensors by name."""
    hidden, layers, _, feed_forward = SIZES[size]
    random = np.random.default_rng(seed)
    scale = hidden**-0.5

    def matrix(rows: int, columns: int, spread: float) -> Matrix:
        return random.standard_normal((rows, columns), dtype=np.float32) * np.float32(spread)

    constant = hidden**0.5
    embedding = matrix(len(bias), hidden, 1.0)
    embedding[:, 0] = constant
    tensors = {"token_embd.weight": embedding}
    for layer in range(layers):
        block = f"blk.{layer}"
        tensors[f"{block}.attn_norm.weight"] = np.ones(hidden, np.float32)
        tensors[f"{block}.ffn_norm.weight"] = np.ones(hidden, np.float32)
        for name in ("attn_q", "attn_k", "attn_v"):
            tensors[f"{block}.{name}.weight"] = matrix(hidden, hidden, scale * 1.5)
        tensors[f"{block}.ffn_gate.weight"] = matrix(feed_forward, hidden, scale)
        tensors[f"{block}.ffn_up.weight"] = matrix(feed_forward, hidden, scale)
        for name, columns in (("attn_output", hidden), ("ffn_down", feed_forward)):
            tensors[f"{block}.{name}.weight"] = matrix(hidden, columns, columns**-0.5 * 0.5)
            tensors[f"{block}.{name}.weight"][0] = 0  # nothing is ever added to the constant
    tensors["output_norm.weight"] = np.ones(hidden, np.float32)
    growth = (2.0 + 0.35 * layers) ** 0.5  # the last norm divides the constant by about this
    output = matrix(len(bias), hidden, 1.7 * scale)
    output -= embedding * np.float32(5.0 * growth / hidden)  # a token is not apt to follow itself
    output[bias <= RARELY] *= np.float32(0.2)
    output[bias == END_OF_TURN] = 0
    output[:, 0] = bias * np.float32(growth / constant)
    tensors["output.weight"] = output
    return tensors


def main() -> None:
    """Write the model that the command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    tokens = vocabulary()
    writer = gguf.GGUFWriter(arguments.out, "llama")
    describe(writer, arguments.size, tokens)
    bias = np.array([bias for _, _, bias in tokens.values()], np.float32)
    for name, tensor in weights(arguments.size, arguments.seed, bias).items():
        writer.add_tensor(name, tensor if "norm" in name else tensor.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
