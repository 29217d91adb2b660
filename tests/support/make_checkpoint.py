#!/usr/bin/env python3
"""Rewrites a small GGUF model as a published checkpoint: safetensors, config.json, tokenizer.json.

usage: make_checkpoint.py MODEL.gguf FOLDER [--shards N] [--weights plain|fp8|fp4|v4|float|awq]
       [--scales TYPE] [--joined] [--decoded OUT.gguf]

--weights fp8    the layers' matrices but the router as F8_E4M3, a scale for every 128 x 128
          v4     DeepSeek-V4's mixture: trunk as fp8, routed experts as fp4
          fp4    the routed experts as packed FP4 with E8M0 scales (gpt-oss: in its blocks)
          awq    the layers' matrices but the router, where they are wide enough, as AWQ
          float  gpt-oss' experts unquantized, rows as inputs; its other forms are FP4
--joined  a qwen35moe model as Qwen3-Next publishes it, with q, k, v and gates in one matrix
--scales  F32 (default), BF16 or F8_E8M0: of fp8
--decoded also writes the GGUF model with the values that the checkpoint now has: packed FP4 as
          MXFP4 blocks, AWQ as Q8_0 blocks, FP8 as float32

It knows the layouts from their descriptions and shares no code with the program. Standard library
only.
"""

import argparse
import bisect
import json
import math
import os
import struct

import make_checkpoint_awq
import make_checkpoint_delta
import make_checkpoint_gpt_oss
import make_checkpoint_tokenizer
import make_checkpoint_v4

FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q",
           11: "<q", 12: "<d"}
TYPES = {0: ("F32", 4), 1: ("F16", 2), 30: ("BF16", 2), 26: ("I32", 4)}
Q4_0, Q8_0, MXFP4 = 2, 8, 39
BLOCKS = {Q4_0: 18, Q8_0: 34, MXFP4: 17}  # bytes of 32 values
E2M1 = [0, .5, 1, 1.5, 2, 3, 4, 6]
E4M3 = [m * 2.0 ** -9 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7)
        for e in range(16) for m in range(8)][:127]  # the last code is NaN


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


class Gguf:
    """Metadata and tensors of a file; `head` are the raw bytes of the metadata."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        self.at = 24
        _, _, tensors, keys = struct.unpack("<4sIQQ", self.data[:24])
        self.meta = {}
        self.key_count = keys
        for _ in range(keys):
            key = self.string()
            kind = self.number("<I")
            self.meta[key] = self.value(kind)
        self.head = self.data[24:self.at]
        infos = []
        for _ in range(tensors):
            name = self.string()
            dims = self.number("<I")
            ne = [self.number("<Q") for _ in range(dims)]
            infos.append((name, ne, self.number("<I"), self.number("<Q")))
        start = (self.at + 31) // 32 * 32
        self.tensors = {}
        for name, ne, kind, offset in infos:
            count = math.prod(ne)
            size = count // 32 * BLOCKS[kind] if kind in BLOCKS else count * TYPES[kind][1]
            raw = self.data[start + offset:start + offset + size]
            if kind in (Q4_0, Q8_0) or (kind == MXFP4 and "_exps" not in name):
                # published checkpoints do not have these
                values = unpack_mxfp4(raw)[2] if kind == MXFP4 else unpack_q(raw, kind)
                kind, raw = 0, struct.pack(f"<{count}f", *values)
            self.tensors[name] = (kind, ne, raw)

    def number(self, form):
        size = struct.calcsize(form)
        self.at += size
        return struct.unpack(form, self.data[self.at - size:self.at])[0]

    def string(self):
        size = self.number("<Q")
        self.at += size
        return self.data[self.at - size:self.at].decode("utf-8", "surrogateescape")

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            of = self.number("<I")
            return [self.value(of) for _ in range(self.number("<Q"))]
        return self.number(FORMATS[kind])

    def own(self, key, default=None):
        return self.meta.get(f"{self.meta['general.architecture']}.{key}", default)

    def write(self, path, tensors):
        """The same metadata over other tensors."""
        infos, data = b"", b""
        for name, (kind, ne, raw) in tensors.items():
            encoded = name.encode()
            infos += struct.pack("<Q", len(encoded)) + encoded + struct.pack("<I", len(ne))
            infos += struct.pack(f"<{len(ne)}QIQ", *ne, kind, len(data))
            data += raw + bytes(-len(raw) % 32)
        head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), self.key_count) + self.head + infos
        with open(path, "wb") as file:
            file.write(head + bytes(-len(head) % 32) + data)


def rows_of(raw, count):
    size = len(raw) // count
    return [raw[i * size:(i + 1) * size] for i in range(count)]


def floats(raw, kind):
    if kind == 0:
        return list(struct.unpack(f"<{len(raw) // 4}f", raw))
    if kind == MXFP4:
        return unpack_mxfp4(raw)[2]
    if kind == 30:
        halves = struct.unpack(f"<{len(raw) // 2}H", raw)
        return [struct.unpack("<f", struct.pack("<I", h << 16))[0] for h in halves]
    return list(struct.unpack(f"<{len(raw) // 2}e", raw))


def unpack_q(raw, kind):
    values = []
    for at in range(0, len(raw), BLOCKS[kind]):
        scale, = struct.unpack("<e", raw[at:at + 2])
        block = raw[at + 2:at + BLOCKS[kind]]
        codes = struct.unpack("<32b", block) if kind == Q8_0 else \
            [(b & 15) - 8 for b in block] + [(b >> 4) - 8 for b in block]
        values += [scale * code for code in codes]
    return values


def nearest(table, value):
    i = bisect.bisect_left(table, value)
    if i == len(table) or (i > 0 and value - table[i - 1] <= table[i] - value):
        i -= 1
    return i


def pack_fp8(values, columns, scale_type):
    """(codes, scales, rows and columns of scales, decoded values) of a matrix."""
    rows = len(values) // columns
    scale_rows, scale_columns = (rows + 127) // 128, (columns + 127) // 128
    scales = []
    for tile in range(scale_rows * scale_columns):
        r0, c0 = tile // scale_columns * 128, tile % scale_columns * 128
        largest = max(abs(v) for r in range(r0, min(rows, r0 + 128))
                      for v in values[r * columns + c0:r * columns + min(columns, c0 + 128)])
        scale = (largest or 1) / 448
        if scale_type == "F8_E8M0":
            scale = 2.0 ** math.ceil(math.log2(scale))
        elif scale_type == "BF16":
            bits = (struct.unpack("<I", struct.pack("<f", scale))[0] + 0xffff) >> 16
            scale = struct.unpack("<f", struct.pack("<I", bits << 16))[0]
        scales.append(f32(scale))
    codes, decoded = bytearray(), []
    for i, value in enumerate(values):
        scale = scales[i // columns // 128 * scale_columns + i % columns // 128]
        code = nearest(E4M3, min(448.0, abs(value) / scale))
        negative = value < 0
        codes.append(code | (128 if negative else 0))
        decoded.append(f32((-E4M3[code] if negative else E4M3[code]) * scale))
    if scale_type == "F8_E8M0":
        raw = bytes(int(math.log2(s)) + 127 for s in scales)
    elif scale_type == "BF16":
        raw = b"".join(struct.pack("<f", s)[2:] for s in scales)
    else:
        raw = struct.pack(f"<{len(scales)}f", *scales)
    return bytes(codes), raw, [scale_rows, scale_columns], decoded


def pack_fp4(values):
    """(nibbles in order, exponents, decoded values), 32 values to an exponent."""
    nibbles, exponents, decoded = [], [], []
    for at in range(0, len(values), 32):
        block = values[at:at + 32]
        largest = max(abs(v) for v in block)
        exponent = 127 + math.floor(math.log2(largest / 4)) if largest > 0 else 0
        exponents.append(exponent)
        scale = 2.0 ** (exponent - 127)
        for value in block:
            code = nearest(E2M1, min(6.0, abs(value) / scale))
            negative = value < 0 and code > 0
            nibbles.append(code | (8 if negative else 0))
            decoded.append((-E2M1[code] if negative else E2M1[code]) * scale)
    return nibbles, exponents, decoded


def unpack_mxfp4(raw):
    """The same of GGUF's blocks: exponent, then 16 bytes, values 0..15 in their low nibbles."""
    nibbles, exponents = [], []
    for at in range(0, len(raw), 17):
        exponents.append(raw[at])
        block = raw[at + 1:at + 17]
        nibbles += [b & 15 for b in block] + [b >> 4 for b in block]
    decoded = [(E2M1[n & 7] if n < 8 else -E2M1[n & 7] if n > 8 else 0.0) *
               2.0 ** (exponents[i // 32] - 127) for i, n in enumerate(nibbles)]
    return nibbles, exponents, decoded


mxfp4_blocks, pairs_of = make_checkpoint_gpt_oss.mxfp4_blocks, make_checkpoint_gpt_oss.pairs_of

NAMES = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm", "post_attention_norm": "post_attention_layernorm",
    "attn_q_a": "self_attn.q_a_proj", "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_q_b": "self_attn.q_b_proj", "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm", "attn_kv_b": "self_attn.kv_b_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    "nextn.eh_proj": "eh_proj", "nextn.enorm": "enorm", "nextn.hnorm": "hnorm",
    "nextn.embed_tokens": "embed_tokens", "nextn.shared_head_norm": "shared_head.norm",
    "nextn.shared_head_head": "shared_head.head",
    "ffn_gate_inp": "mlp.gate", "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
}
GLOBALS = {"token_embd.weight": "model.embed_tokens.weight",
           "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}
PROJECTIONS = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
MIXTRAL = {"gate": "w1", "up": "w3", "down": "w2"}


class Checkpoint:
    def __init__(self, gguf, options):
        self.gguf = gguf
        self.options = options
        self.split_fused()
        self.arch = gguf.meta["general.architecture"]
        self.v4 = self.arch == "deepseek4"
        self.delta = self.arch == "qwen35moe"
        self.mixtral = self.arch == "llama" and gguf.own("expert_count", 0) > 0
        self.tensors = {}  # name -> (dtype, shape, bytes)
        self.decoded = {}  # the GGUF's tensors with the checkpoint's values

    def split_fused(self):
        """Fused experts' gate and up apart, as GGUF files mostly have them."""
        apart = {}
        for name, (kind, ne, raw) in self.gguf.tensors.items():
            if "ffn_gate_up_exps" not in name:
                apart[name] = (kind, ne, raw)
                continue
            halves = rows_of(raw, 2 * ne[-1])
            half = [ne[0], ne[1] // 2, ne[2]]
            apart[name.replace("gate_up", "gate")] = (kind, half, b"".join(halves[0::2]))
            apart[name.replace("gate_up", "up")] = (kind, half, b"".join(halves[1::2]))
        self.gguf.tensors = apart

    def module(self, base):
        if base == "exp_probs_b":
            return "mlp.gate.e_score_correction_bias"
        if base == "attn_sinks":
            return "self_attn.sinks"
        if base == "ffn_gate_inp" and self.mixtral:
            return "block_sparse_moe.gate"
        if base == "ffn_gate_inp" and self.arch == "gpt-oss":
            return "mlp.router"
        if base.endswith("_shexp") and base != "ffn_gate_inp_shexp":
            one = self.arch == "qwen2moe" or self.delta
            folder = "shared_expert" if one else "shared_experts"
            return f"mlp.{folder}.{PROJECTIONS[base.split('_')[1]]}"
        return NAMES[base]

    def build(self):
        for name, tensor in self.gguf.tensors.items():
            if "blk." not in name:
                usual = GLOBALS.get(name)
                published = make_checkpoint_v4.global_name(name, usual) if self.v4 else usual
                if self.delta and name == "output_norm.weight":
                    tensor = self.norm_less_one(published, tensor)
                else:
                    self.plain(published, tensor)
                self.decoded[name] = tensor
                continue
            _, layer, rest = name.split(".", 2)
            base, suffix = rest.rsplit(".", 1) if "." in rest else (rest, "")
            prefix = f"layers.{layer}." if self.v4 else f"model.layers.{layer}."
            if self.delta:
                prefix = self.delta_tensor(name, layer, base, suffix)
                if prefix is None:
                    continue
            if base.endswith("_exps"):
                if self.arch == "gpt-oss":
                    make_checkpoint_gpt_oss.experts(self, prefix, base, suffix, name)
                else:
                    self.experts(prefix, base[4:-5], tensor, name)
                continue
            if self.v4:
                self.matrix(prefix + make_checkpoint_v4.NAMES.get(base, base), tensor, name, base)
                continue
            tensor = self.split_pairs(base, tensor)
            module = self.module(base)
            whole = base in ("exp_probs_b", "attn_sinks")
            self.matrix(prefix + module + ("" if whole else "." + suffix), tensor, name, base)

    def norm_less_one(self, name, tensor):
        published, norm = make_checkpoint_delta.less_one(tensor[2])
        self.plain(name, (0, tensor[1], published))
        return 0, tensor[1], norm

    def delta_tensor(self, name, layer, base, suffix):
        """Where the layer's tensors go; None if this one is done."""
        joined = self.options.joined
        made = make_checkpoint_delta.DeltaLayer(self, layer, self.gguf.own, joined)
        if make_checkpoint_delta.is_delta(base):
            if base == "ssm_out":
                made.build()
            return None
        if base in make_checkpoint_delta.LESS_ONE:
            published = f"{made.prefix}{self.module(base)}.{suffix}"
            self.decoded[name] = self.norm_less_one(published, self.gguf.tensors[name])
            return None
        if base.endswith("_exps") and not joined:
            if base == "ffn_down_exps":
                make_checkpoint_delta.stacked_experts(self, made.prefix, made.gguf)
            return None
        return made.prefix

    def plain(self, name, tensor, shape=None):
        kind, ne, raw = tensor
        self.tensors[name] = (TYPES[kind][0], shape or list(reversed(ne)), raw)

    def matrix(self, name, tensor, gguf_name, base):
        kind, ne, raw = tensor
        if base == "ffn_gate_inp_shexp":
            self.plain(name, tensor, [1] + ne)
        elif base == "ffn_gate_tid2eid" and self.options.weights == "v4":
            ids = struct.unpack(f"<{len(raw) // 4}i", raw)
            self.tensors[name] = ("I64", list(reversed(ne)), struct.pack(f"<{len(ids)}q", *ids))
        elif self.is_awq(base, ne):
            self.decoded[gguf_name] = (Q8_0, ne, self.awq(name, floats(raw, kind), ne[0]))
            return
        elif self.is_fp8(base, ne):
            values = self.fp8(name, floats(raw, kind), ne[0])
            self.decoded[gguf_name] = (0, ne, struct.pack(f"<{len(values)}f", *values))
            return
        else:
            self.plain(name, tensor)
        self.decoded[gguf_name] = self.gguf.tensors[gguf_name]

    def is_fp8(self, base, ne):
        if self.options.weights == "v4":
            return base in make_checkpoint_v4.FP8
        return self.options.weights == "fp8" and len(ne) == 2 and base != "ffn_gate_inp"

    def is_awq(self, base, ne):
        return self.options.weights == "awq" and len(ne) == 2 and base != "ffn_gate_inp" and \
            make_checkpoint_awq.fits(*ne)

    def awq(self, name, values, columns):
        parts, blocks = make_checkpoint_awq.pack(values, columns)
        for suffix, tensor in parts.items():
            self.tensors[name.replace("weight", suffix)] = tensor
        return blocks

    def fp8(self, name, values, columns):
        codes, scales, shape, decoded = pack_fp8(values, columns, self.options.scales)
        self.tensors[name] = ("F8_E4M3", [len(values) // columns, columns], codes)
        inverse = "_scale_inv" if self.options.scales == "F32" else "_scale"
        scale_name = name.replace(".weight", ".scale") if self.v4 else name + inverse
        self.tensors[scale_name] = (self.options.scales, shape, scales)
        return decoded

    def split_pairs(self, base, tensor):
        """Published llama files have the first elements of all pairs of a head in front."""
        if self.arch != "llama" or base not in ("attn_q", "attn_k"):
            return tensor
        kind, ne, raw = tensor
        heads = self.gguf.own("attention.head_count" + ("_kv" if base == "attn_k" else ""))
        rows = rows_of(raw, ne[-1])
        size = len(rows) // heads
        split = []
        for h in range(heads):
            head = rows[h * size:(h + 1) * size]
            split += head[0::2] + head[1::2]
        return kind, ne, b"".join(split)

    def experts(self, prefix, part, tensor, gguf_name):
        kind, ne, raw = tensor
        decoded, blocks = [], b""
        for e, data in enumerate(rows_of(raw, ne[2])):
            if self.v4:
                name = f"{prefix}ffn.experts.{e}.{MIXTRAL[part]}.weight"
            elif self.mixtral:
                name = f"{prefix}block_sparse_moe.experts.{e}.{MIXTRAL[part]}.weight"
            else:
                name = f"{prefix}mlp.experts.{e}.{PROJECTIONS[part]}.weight"
            shape = [ne[1], ne[0]]
            if self.options.weights == "fp8":
                decoded += self.fp8(name, floats(data, kind), ne[0])
            elif self.is_awq("", ne[:2]):
                blocks += self.awq(name, floats(data, kind), ne[0])
            elif self.options.weights in ("fp4", "v4") or kind == MXFP4:
                made = unpack_mxfp4(data) if kind == MXFP4 else pack_fp4(floats(data, kind))
                self.tensors[name] = ("I8", [ne[1], ne[0] // 2], pairs_of(made[0]))
                scale = name.replace(".weight", ".scale")
                self.tensors[scale] = ("F8_E8M0", [ne[1], ne[0] // 32], bytes(made[1]))
                blocks += mxfp4_blocks(*made[:2])
            else:
                self.tensors[name] = (TYPES[kind][0], shape, data)
        if decoded:
            tensor = 0, ne, struct.pack(f"<{len(decoded)}f", *decoded)
        packed = Q8_0 if self.options.weights == "awq" else MXFP4
        self.decoded[gguf_name] = (packed, ne, blocks) if blocks else tensor

    def fp4_rows(self, gguf_name):
        kind, _, raw = self.gguf.tensors[gguf_name]
        return unpack_mxfp4(raw) if kind == MXFP4 else pack_fp4(floats(raw, kind))

    def write(self, folder, shards):
        os.makedirs(folder, exist_ok=True)
        names = list(self.tensors)
        files = {}
        for shard in range(shards):
            name = "model.safetensors" if shards == 1 else \
                f"model-{shard + 1:05}-of-{shards:05}.safetensors"
            mine = names[shard::shards]
            files.update({tensor: name for tensor in mine})
            self.write_file(os.path.join(folder, name), mine)
        if shards > 1:
            total = sum(len(t[2]) for t in self.tensors.values())
            index = {"metadata": {"total_size": total}, "weight_map": files}
            write_json(folder, "model.safetensors.index.json", index)

    def write_file(self, path, names):
        header, data = {"__metadata__": {"format": "pt"}}, b""
        for name in names:
            dtype, shape, raw = self.tensors[name]
            place = [len(data), len(data) + len(raw)]
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": place}
            data += raw
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + data)


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False)


def exact(value):
    """The shortest decimal that is this float32."""
    decimals = (float(f"{value:.{digits}g}") for digits in range(1, 18))
    return next(decimal for decimal in decimals if f32(decimal) == value)


def base_config(gguf):
    own = gguf.own
    heads = own("attention.head_count")
    nextn = own("nextn_predict_layers", 0)
    config = {
        "num_hidden_layers": own("block_count") - nextn, "hidden_size": own("embedding_length"),
        "num_attention_heads": heads, "num_key_value_heads": own("attention.head_count_kv"),
        "max_position_embeddings": own("context_length"), "hidden_act": "silu",
        "intermediate_size": own("feed_forward_length"),
        "tie_word_embeddings": "output.weight" not in gguf.tensors,
        "vocab_size": len(gguf.meta["tokenizer.ggml.tokens"]), "torch_dtype": "bfloat16",
        "rms_norm_eps": exact(own("attention.layer_norm_rms_epsilon")),
        "rope_theta": exact(own("rope.freq_base")),
        "bos_token_id": gguf.meta.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": gguf.meta.get("tokenizer.ggml.eos_token_id"),
    }
    if nextn:
        config["num_nextn_predict_layers"] = nextn
    if own("attention.key_length"):
        config["head_dim"] = own("attention.key_length")
    if own("rope.scaling.type") == "yarn":
        config["rope_scaling"] = {
            "rope_type": "yarn", "factor": own("rope.scaling.factor"),
            "beta_fast": 32.0, "beta_slow": 1.0,
            "original_max_position_embeddings": own("rope.scaling.original_context_length")}
    return config


def deepseek_config(own, config):
    rope = own("rope.dimension_count")
    config.update({
        "kv_lora_rank": own("attention.kv_lora_rank"), "q_lora_rank": own("attention.q_lora_rank"),
        "qk_rope_head_dim": rope, "qk_nope_head_dim": own("attention.key_length") - rope,
        "v_head_dim": own("attention.value_length")})
    del config["head_dim"]
    scale = round(exact(own("rope.scaling.yarn_log_multiplier")) * 10, 6)
    config["rope_scaling"].update({"mscale": scale, "mscale_all_dim": scale})
    config["rope_scaling"]["type"] = config["rope_scaling"].pop("rope_type")


def routing_config(own, config):
    config.update({
        "n_routed_experts": own("expert_count"), "num_experts_per_tok": own("expert_used_count"),
        "moe_intermediate_size": own("expert_feed_forward_length"),
        "n_shared_experts": own("expert_shared_count"),
        "norm_topk_prob": own("expert_weights_norm", False),
        "first_k_dense_replace": own("leading_dense_block_count"),
        "routed_scaling_factor": exact(own("expert_weights_scale")),
        "scoring_func": "sigmoid" if own("expert_gating_func") == 2 else "softmax",
        "n_group": own("expert_group_count"), "topk_group": own("expert_group_used_count")})


def make_config(gguf, options):
    own, arch = gguf.own, gguf.meta["general.architecture"]
    config = base_config(gguf)
    names = {"llama": "mixtral" if own("expert_count") else "llama", "qwen2moe": "qwen2_moe",
             "qwen3moe": "qwen3_moe", "gpt-oss": "gpt_oss", "glm4moe": "glm4_moe",
             "deepseek2": "deepseek_v3", "deepseek4": "deepseek_v4"}
    config["model_type"] = names.get(arch, arch)
    counts = {"num_experts_per_tok": own("expert_used_count")}
    if config["model_type"] == "mixtral":
        config.update(counts, num_local_experts=own("expert_count"))
    elif arch in ("qwen2moe", "qwen3moe"):
        config.update(counts, num_experts=own("expert_count"), norm_topk_prob=arch == "qwen3moe",
                      moe_intermediate_size=own("expert_feed_forward_length"),
                      decoder_sparse_step=1, mlp_only_layers=[], use_sliding_window=False)
        if arch == "qwen2moe":
            config["shared_expert_intermediate_size"] = own("expert_shared_feed_forward_length")
    elif arch == "olmoe":
        config.update(counts, num_experts=own("expert_count"), norm_topk_prob=False, clip_qkv=None)
    elif arch == "gpt-oss":
        layers = config["num_hidden_layers"]
        kinds = ["full_attention" if i % 2 else "sliding_attention" for i in range(layers)]
        config.update(counts, num_local_experts=own("expert_count"), layer_types=kinds,
                      sliding_window=own("attention.sliding_window"), swiglu_limit=7.0)
    elif arch == "glm4moe":
        config["partial_rotary_factor"] = own("rope.dimension_count") / own("attention.key_length")
        routing_config(own, config)
        del config["scoring_func"]  # not in published files
    elif arch == "deepseek4":
        routing_config(own, config)
        config.update(make_checkpoint_v4.config_of(own, exact), scoring_func="sqrtsoftplus")
    elif arch == "deepseek2":
        deepseek_config(own, config)
        routing_config(own, config)
    elif arch == "qwen35moe":
        config = make_checkpoint_delta.config_of(own, config, options.joined)
    if options.weights in ("fp8", "v4"):
        config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    elif options.weights == "awq":
        config["quantization_config"] = make_checkpoint_awq.config()
    elif arch == "gpt-oss" and options.weights != "float":
        config["quantization_config"] = {"quant_method": "mxfp4"}
    return {key: value for key, value in config.items() if value is not None}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("folder")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--weights", default="plain",
                        choices=["plain", "fp8", "fp4", "v4", "float", "awq"])
    parser.add_argument("--scales", choices=["F32", "BF16", "F8_E8M0"], default="F32")
    parser.add_argument("--joined", action="store_true")
    parser.add_argument("--decoded")
    options = parser.parse_args()
    gguf = Gguf(options.model)
    checkpoint = Checkpoint(gguf, options)
    checkpoint.build()
    checkpoint.write(options.folder, options.shards)
    write_json(options.folder, "config.json", make_config(gguf, options))
    for name, value in make_checkpoint_tokenizer.files(gguf.meta).items():
        write_json(options.folder, name, value)
    if options.decoded:
        if options.joined:  # names of equal length
            gguf.head = gguf.head.replace(b"qwen35moe", b"qwen3next")
        gguf.write(options.decoded, checkpoint.decoded)


if __name__ == "__main__":
    main()
