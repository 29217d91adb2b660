"""The forward pass of a small qwen3moe model in double precision, from its definition, with loops
over Python numbers: what the logits of given weights are. Part of checkpoints.py; standard library
only."""

import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import make_checkpoint  # its reader of GGUF files


def norm(values, weight, eps):
    scale = 1 / math.sqrt(sum(v * v for v in values) / len(values) + eps)
    return [v * scale * w for v, w in zip(values, weight)]


def silu(value):
    return value / (1 + math.exp(-value))


def softmax(values):
    largest = max(values)
    powers = [math.exp(v - largest) for v in values]
    total = sum(powers)
    return [p / total for p in powers]


def rotate(head, position, base):
    """Pairs (i, i + half)."""
    half = len(head) // 2
    out = list(head)
    for i in range(half):
        angle = position * base ** (-i / half)
        cosine, sine = math.cos(angle), math.sin(angle)
        out[i] = head[i] * cosine - head[i + half] * sine
        out[i + half] = head[i] * sine + head[i + half] * cosine
    return out


class Model:
    """Weights as lists of rows; `path`: a GGUF file with F32 tensors."""

    def __init__(self, path):
        gguf = make_checkpoint.Gguf(path)
        self.own = gguf.own
        self.eps = self.own("attention.layer_norm_rms_epsilon")
        self.size = self.own("attention.key_length")
        self.weights = {}
        for name, (kind, ne, raw) in gguf.tensors.items():
            values = make_checkpoint.floats(raw, kind)
            rows = len(values) // ne[0]
            self.weights[name] = [values[i * ne[0]:(i + 1) * ne[0]] for i in range(rows)]

    def times(self, name, values, first=0, count=None):
        rows = self.weights[name]
        end = len(rows) if count is None else first + count
        return [math.fsum(w * v for w, v in zip(row, values)) for row in rows[first:end]]

    def heads(self, name, values, position):
        projected = self.times(name + ".weight", values)
        out = []
        for at in range(0, len(projected), self.size):
            head = projected[at:at + self.size]
            if not name.endswith("attn_v"):
                head = norm(head, self.weights[name + "_norm.weight"][0], self.eps)
                head = rotate(head, position, self.own("rope.freq_base"))
            out.append(head)
        return out

    def attention(self, layer, values, cache):
        position = len(cache)
        front = f"blk.{layer}.attn_"
        queries = self.heads(front + "q", values, position)
        keys, own = (self.heads(front + part, values, position) for part in "kv")
        cache.append((keys, own))
        share = len(queries) // len(cache[0][0])
        joined = []
        for h, query in enumerate(queries):
            scores = [sum(a * b for a, b in zip(query, keys[h // share])) / math.sqrt(self.size)
                      for keys, _ in cache]
            weights = softmax(scores)
            joined += [sum(w * values[h // share][i] for w, (_, values) in zip(weights, cache))
                       for i in range(self.size)]
        return self.times(front + "output.weight", joined)

    def experts(self, layer, values):
        front = f"blk.{layer}.ffn_"
        scores = softmax(self.times(front + "gate_inp.weight", values))
        chosen = sorted(range(len(scores)), key=lambda e: (-scores[e], e))
        chosen = chosen[:self.own("expert_used_count")]
        total = sum(scores[e] for e in chosen)
        inner, width = self.own("expert_feed_forward_length"), len(values)
        out = [0.0] * width
        for e in chosen:
            gate = self.times(front + "gate_exps.weight", values, e * inner, inner)
            up = self.times(front + "up_exps.weight", values, e * inner, inner)
            hidden = [silu(g) * u for g, u in zip(gate, up)]
            made = self.times(front + "down_exps.weight", hidden, e * width, width)
            out = [o + scores[e] / total * m for o, m in zip(out, made)]
        return out

    def logits(self, ids):
        """A list of logits for every position."""
        caches = [[] for _ in range(self.own("block_count"))]
        rows = []
        for token in ids:
            x = self.weights["token_embd.weight"][token]
            for layer, cache in enumerate(caches):
                normed = norm(x, self.weights[f"blk.{layer}.attn_norm.weight"][0], self.eps)
                x = [a + b for a, b in zip(x, self.attention(layer, normed, cache))]
                normed = norm(x, self.weights[f"blk.{layer}.ffn_norm.weight"][0], self.eps)
                x = [a + b for a, b in zip(x, self.experts(layer, normed))]
            x = norm(x, self.weights["output_norm.weight"][0], self.eps)
            rows.append(self.times("output.weight", x))
        return rows
