"""Gated delta nets as Qwen3.5 and Qwen3-Next publish them: value heads grouped by key heads, norms
less one, logarithms of decays. Part of make_checkpoint.py."""

import math
import struct

NAMES = {
    "attn_qkv": "linear_attn.in_proj_qkv", "attn_gate": "linear_attn.in_proj_z",
    "ssm_beta": "linear_attn.in_proj_b", "ssm_alpha": "linear_attn.in_proj_a",
    "ssm_conv1d": "linear_attn.conv1d", "ssm_norm": "linear_attn.norm",
    "ssm_out": "linear_attn.out_proj", "ssm_dt": "linear_attn.dt_bias",
    "ssm_a": "linear_attn.A_log",
}
LESS_ONE = ("attn_norm", "post_attention_norm", "attn_q_norm", "attn_k_norm", "output_norm")


def f32s(values):
    return struct.pack(f"<{len(values)}f", *values)


def less_one(raw):
    """What is published of a norm, and the norm that comes of it."""
    published = f32s([w - 1 for w in struct.unpack(f"<{len(raw) // 4}f", raw)])
    back = struct.unpack(f"<{len(raw) // 4}f", published)
    return published, f32s([w + 1 for w in back])


class DeltaLayer:
    """One layer's tensors, from a GGUF file's order of value heads (tiled) to the publisher's."""

    def __init__(self, checkpoint, number, own, joined):
        self.out = checkpoint
        self.gguf = f"blk.{number}."
        self.prefix = ("model.layers." if joined else "model.language_model.layers.") + f"{number}."
        self.key_heads, self.heads = own("ssm.group_count"), own("ssm.time_step_rank")
        self.keys = self.key_heads * own("ssm.state_size")
        self.dim = own("ssm.inner_size") // self.heads
        self.joined = joined

    def source(self, base):
        name = self.gguf + base
        return self.out.gguf.tensors[name]

    def grouped(self, parts):
        """Parts of value heads, those of a key head together."""
        share = self.heads // self.key_heads
        return [parts[i * self.key_heads + k] for k in range(self.key_heads) for i in range(share)]

    def rows(self, raw, count):
        size = len(raw) // count
        return [raw[i * size:(i + 1) * size] for i in range(count)]

    def heads_of(self, raw):
        return self.grouped(self.rows(raw, self.heads))

    def behind_keys(self, raw):
        """Rows of q and k as they are, those of values in groups."""
        size = len(raw) // (2 * self.keys + self.heads * self.dim)
        cut = 2 * self.keys * size
        return raw[:cut], self.heads_of(raw[cut:])

    def put(self, base, ne, raw, twin=None, shape=None):
        name = NAMES[base] if base in NAMES else base
        suffix = "" if base in ("ssm_dt", "ssm_a") else ".weight"
        self.out.tensors[self.prefix + name + suffix] = \
            ("F32", shape or list(reversed(ne)), raw)
        suffix = {"ssm_dt": ".bias", "ssm_a": ""}.get(base, ".weight")
        self.out.decoded[self.gguf + base + suffix] = \
            (0, ne, raw if self.joined else twin or self.source(base + suffix)[2])

    def build(self):
        _, ne, raw = self.source("ssm_conv1d.weight")
        keys, values = self.behind_keys(raw)
        self.put("ssm_conv1d", ne, keys + b"".join(values), shape=[ne[1], 1, ne[0]])
        _, ne, raw = self.source("ssm_dt.bias")
        self.put("ssm_dt", ne, b"".join(self.heads_of(raw)))
        self.decays()
        _, ne, raw = self.source("ssm_norm.weight")
        self.put("ssm_norm", ne, raw)
        _, ne, raw = self.source("ssm_out.weight")
        self.put("ssm_out", ne,
                 b"".join(b"".join(self.heads_of(row)) for row in self.rows(raw, ne[1])))
        _, ne, raw = self.source("attn_qkv.weight")
        keys, values = self.behind_keys(raw)
        gates = self.heads_of(self.source("attn_gate.weight")[2])
        beta, alpha = (self.heads_of(self.source(f"ssm_{s}.weight")[2]) for s in ("beta", "alpha"))
        if self.joined:
            self.join(ne[0], keys, values, gates, beta, alpha)
            return
        self.put("attn_qkv", ne, keys + b"".join(values))
        self.put("attn_gate", self.source("attn_gate.weight")[1], b"".join(gates))
        self.put("ssm_beta", [ne[0], self.heads], b"".join(beta))
        self.put("ssm_alpha", [ne[0], self.heads], b"".join(alpha))

    def decays(self):
        _, ne, raw = self.source("ssm_a")
        logs = f32s([math.log(-a) for a in struct.unpack(f"<{self.heads}f", raw)])
        decays = f32s([-math.exp(x) for x in struct.unpack(f"<{self.heads}f", logs)])
        published = b"".join(self.heads_of(logs))
        self.put("ssm_a", ne, published, decays)
        if self.joined:
            self.out.decoded[self.gguf + "ssm_a"] = (0, ne, b"".join(self.heads_of(decays)))

    def join(self, width, keys, values, gates, beta, alpha):
        """For each key head q, k, its value heads' v, their gates; and strengths, then decays."""
        share = self.heads // self.key_heads
        q, k = (self.rows(half, self.key_heads) for half in self.rows(keys, 2))
        wide, narrow = b"", b""
        for head in range(self.key_heads):
            mine = slice(head * share, (head + 1) * share)
            wide += q[head] + k[head] + b"".join(values[mine]) + b"".join(gates[mine])
            narrow += b"".join(beta[mine]) + b"".join(alpha[mine])
        for base, name, raw in (("ssm_in", "in_proj_qkvz", wide), ("ssm_ba", "in_proj_ba", narrow)):
            ne = [width, len(raw) // 4 // width]
            self.out.tensors[f"{self.prefix}linear_attn.{name}.weight"] = \
                ("F32", list(reversed(ne)), raw)
            self.out.decoded[f"{self.gguf}{base}.weight"] = (0, ne, raw)


def is_delta(base):
    return base in NAMES or base.startswith("ssm_")


def stacked_experts(checkpoint, prefix, gguf):
    """Gate over up, for all experts."""
    tensors = checkpoint.gguf.tensors
    for part in ("gate", "up", "down"):
        name = f"{gguf}ffn_{part}_exps.weight"
        checkpoint.decoded[name] = tensors[name]
    gate, up, down = (tensors[f"{gguf}ffn_{p}_exps.weight"] for p in ("gate", "up", "down"))
    count, size = gate[1][2], len(gate[2]) // gate[1][2]
    both = b"".join(gate[2][i * size:(i + 1) * size] + up[2][i * size:(i + 1) * size]
                    for i in range(count))
    checkpoint.plain(f"{prefix}mlp.experts.gate_up_proj",
                     (gate[0], [gate[1][0], 2 * gate[1][1], count], both))
    checkpoint.plain(f"{prefix}mlp.experts.down_proj", down)


def config_of(own, config, joined):
    config.update({
        "linear_conv_kernel_dim": own("ssm.conv_kernel"),
        "linear_key_head_dim": own("ssm.state_size"),
        "linear_num_key_heads": own("ssm.group_count"),
        "linear_num_value_heads": own("ssm.time_step_rank"),
        "linear_value_head_dim": own("ssm.inner_size") // own("ssm.time_step_rank"),
        "full_attention_interval": own("full_attention_interval"),
        "num_experts": own("expert_count"), "num_experts_per_tok": own("expert_used_count"),
        "moe_intermediate_size": own("expert_feed_forward_length"),
        "shared_expert_intermediate_size": own("expert_shared_feed_forward_length")})
    share = own("rope.dimension_count") / own("attention.key_length")
    if joined:
        config.update(model_type="qwen3_next", partial_rotary_factor=share, norm_topk_prob=True,
                      decoder_sparse_step=1, mlp_only_layers=[])
        return config
    interval = own("full_attention_interval")
    config["layer_types"] = ["linear_attention" if (i + 1) % interval else "full_attention"
                             for i in range(config["num_hidden_layers"])]
    config["rope_parameters"] = {"rope_type": "default", "mrope_section": [4, 2, 2],
                                 "rope_theta": config.pop("rope_theta"),
                                 "partial_rotary_factor": share}
    config.update(model_type="qwen3_5_moe_text", attn_output_gate=True)
    return {"model_type": "qwen3_5_moe", "vision_config": {"depth": 2},
            "tie_word_embeddings": config.pop("tie_word_embeddings"), "text_config": config}
