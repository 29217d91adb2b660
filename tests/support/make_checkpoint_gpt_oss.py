"""gpt-oss' experts as published: FP4 blocks and scales apart, or unquantized with rows as inputs;
in both forms the rows of gate and up by turns. Part of make_checkpoint.py."""

import struct


def rows_of(raw, count):
    size = len(raw) // count
    return [raw[i * size:(i + 1) * size] for i in range(count)]


def experts(checkpoint, prefix, base, suffix, gguf_name):
    """One GGUF tensor; up goes with gate."""
    stem = "down_proj" if base == "ffn_down_exps" else "gate_up_proj"
    name = f"{prefix}mlp.experts.{stem}"
    if suffix == "bias":
        biases(checkpoint, name + "_bias", base, gguf_name)
    elif checkpoint.options.weights == "float":
        by_inputs(checkpoint, name, base, gguf_name)
    else:
        blocks(checkpoint, name, base, gguf_name)


def biases(checkpoint, name, base, gguf_name):
    tensors = checkpoint.gguf.tensors
    _, ne, raw = tensors[gguf_name]
    checkpoint.decoded[gguf_name] = tensors[gguf_name]
    if base == "ffn_up_exps":
        return
    width = ne[0]
    if base == "ffn_gate_exps":
        other = tensors[gguf_name.replace("gate", "up")][2]
        raw = b"".join(a + b for a, b in zip(rows_of(raw, len(raw) // 4),
                                             rows_of(other, len(raw) // 4)))
        width *= 2
    checkpoint.tensors[name] = ("F32", [ne[1], width], raw)


def blocks(checkpoint, name, base, gguf_name):
    _, ne, _ = checkpoint.gguf.tensors[gguf_name]
    made = checkpoint.fp4_rows(gguf_name)
    checkpoint.decoded[gguf_name] = (39, ne, mxfp4_blocks(*made[:2]))
    if base == "ffn_up_exps":
        return
    rows = rows_of(pairs_of(made[0]), ne[1] * ne[2])
    scales = rows_of(bytes(made[1]), len(rows))
    height = ne[1]
    if base == "ffn_gate_exps":
        other = checkpoint.fp4_rows(gguf_name.replace("gate", "up"))
        others = rows_of(pairs_of(other[0]), len(rows)), rows_of(bytes(other[1]), len(rows))
        rows = [r for pair in zip(rows, others[0]) for r in pair]
        scales = [s for pair in zip(scales, others[1]) for s in pair]
        height *= 2
    count = ne[0] // 32
    checkpoint.tensors[name + "_blocks"] = ("U8", [ne[2], height, count, 16], b"".join(rows))
    checkpoint.tensors[name + "_scales"] = ("U8", [ne[2], height, count], b"".join(scales))


def mxfp4_blocks(nibbles, exponents):
    out = bytearray()
    for i, exponent in enumerate(exponents):
        block = nibbles[32 * i:32 * i + 32]
        out.append(exponent)
        out += bytes(low | high << 4 for low, high in zip(block[:16], block[16:]))
    return bytes(out)


def pairs_of(nibbles):
    return bytes(nibbles[i] | nibbles[i + 1] << 4 for i in range(0, len(nibbles), 2))


def by_inputs(checkpoint, name, base, gguf_name):
    """[experts, inputs, rows]. FP4's values are BF16's too."""
    def matrices(source):
        kind, ne, raw = checkpoint.gguf.tensors[source]
        size = 4
        if kind == 39:
            kind, size = 30, 2
            raw = b"".join(struct.pack("<f", v)[2:] for v in checkpoint.fp4_rows(source)[2])
        checkpoint.decoded[source] = (kind, ne, raw)
        return [rows_of(m, len(m) // size) for m in rows_of(raw, ne[2])]
    _, (inputs, rows, count), _ = checkpoint.gguf.tensors[gguf_name]
    if base == "ffn_up_exps":
        return
    parts = [matrices(gguf_name)]
    if base == "ffn_gate_exps":
        parts.append(matrices(gguf_name.replace("gate", "up")))
    turned = b"".join(part[e][r * inputs + i] for e in range(count) for i in range(inputs)
                      for r in range(rows) for part in parts)
    kind = "BF16" if checkpoint.decoded[gguf_name][0] == 30 else "F32"
    checkpoint.tensors[name] = (kind, [count, inputs, rows * len(parts)], turned)
