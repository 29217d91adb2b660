"""AWQ as published: 4-bit codes with inputs as rows, eight outputs in a word; zeros and scales for
every 128 inputs; no GGUF type is like it, but Q8_0 holds codes less their zeros with the same
scales. Of make_checkpoint.py."""

import struct

GROUP = 128
ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # the output of a word's nibbles


def fits(columns, rows):
    return columns % GROUP == 0 and rows % 8 == 0


def words_of(lines):
    """Packed lines of one number per output."""
    raw = bytearray()
    for line in lines:
        for at in range(0, len(line), 8):
            raw += struct.pack("<I", sum(line[at + o] << 4 * n for n, o in enumerate(ORDER)))
    return bytes(raw)


def quantize(values):
    """(codes, zero, bits of the scale, codes less zero as Q8_0 blocks) of a group."""
    low, high = min(0.0, *values), max(0.0, *values)
    half = struct.pack("<e", (high - low) / 15 or 1.0)
    scale, = struct.unpack("<e", half)
    zero = min(15, max(0, round(-low / scale)))
    codes = [min(15, max(0, round(v / scale) + zero)) for v in values]
    blocks = bytearray()
    for at in range(0, GROUP, 32):
        blocks += half + struct.pack("<32b", *(c - zero for c in codes[at:at + 32]))
    return codes, zero, half, bytes(blocks)


def pack(values, columns):
    """({suffix: (dtype, shape, bytes)}, Q8_0 blocks) of a matrix."""
    rows, groups = len(values) // columns, columns // GROUP
    codes = [[0] * rows for _ in range(columns)]
    zeros = [[0] * rows for _ in range(groups)]
    scales = [[b""] * rows for _ in range(groups)]
    decoded = bytearray()
    for row in range(rows):
        for group in range(groups):
            at = row * columns + group * GROUP
            made, zeros[group][row], scales[group][row], blocks = quantize(values[at:at + GROUP])
            for i, code in enumerate(made):
                codes[group * GROUP + i][row] = code
            decoded += blocks
    parts = {"qweight": ("I32", [columns, rows // 8], words_of(codes)),
             "qzeros": ("I32", [groups, rows // 8], words_of(zeros)),
             "scales": ("F16", [groups, rows], b"".join(b"".join(line) for line in scales))}
    return parts, bytes(decoded)


def config():
    return {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm",
            "zero_point": True, "modules_to_not_convert": ["gate"]}
