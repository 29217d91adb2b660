"""Names and settings of DeepSeek-V4's published checkpoints. Part of make_checkpoint.py."""

NAMES = {
    "attn_norm": "attn_norm.weight", "ffn_norm": "ffn_norm.weight", "attn_q_a": "attn.wq_a.weight",
    "attn_q_a_norm": "attn.q_norm.weight", "attn_q_b": "attn.wq_b.weight",
    "attn_kv": "attn.wkv.weight", "attn_kv_a_norm": "attn.kv_norm.weight",
    "attn_output_a": "attn.wo_a.weight", "attn_output_b": "attn.wo_b.weight",
    "attn_sinks": "attn.attn_sink", "attn_compressor_ape": "attn.compressor.ape",
    "attn_compressor_kv": "attn.compressor.wkv.weight",
    "attn_compressor_gate": "attn.compressor.wgate.weight",
    "attn_compressor_norm": "attn.compressor.norm.weight",
    "indexer.attn_q_b": "attn.indexer.wq_b.weight",
    "indexer.proj": "attn.indexer.weights_proj.weight",
    "indexer_compressor_ape": "attn.indexer.compressor.ape",
    "indexer_compressor_kv": "attn.indexer.compressor.wkv.weight",
    "indexer_compressor_gate": "attn.indexer.compressor.wgate.weight",
    "indexer_compressor_norm": "attn.indexer.compressor.norm.weight",
    "ffn_gate_inp": "ffn.gate.weight", "exp_probs_b": "ffn.gate.bias",
    "ffn_gate_tid2eid": "ffn.gate.tid2eid", "ffn_gate_shexp": "ffn.shared_experts.w1.weight",
    "ffn_up_shexp": "ffn.shared_experts.w3.weight",
    "ffn_down_shexp": "ffn.shared_experts.w2.weight",
}
FP8 = ("attn_q_a", "attn_q_b", "attn_kv", "attn_output_a", "attn_output_b", "ffn_gate_shexp",
       "ffn_up_shexp", "ffn_down_shexp")  # what is published so


def global_name(name, usual):
    if name.startswith("output_hc_"):
        return "hc_head_" + name[len("output_hc_"):-len(".weight")]
    return usual.replace("model.", "").replace("embed_tokens", "embed").replace(
        "lm_head", "head")


def config_of(own, exact):
    return {
        "qk_rope_head_dim": own("rope.dimension_count"),
        "q_lora_rank": own("attention.q_lora_rank"),
        "sliding_window": own("attention.sliding_window"),
        "o_groups": own("attention.output_group_count"),
        "o_lora_rank": own("attention.output_lora_rank"),
        "index_n_heads": own("attention.indexer.head_count"),
        "index_head_dim": own("attention.indexer.key_length"),
        "index_topk": own("attention.indexer.top_k"),
        "compress_ratios": own("attention.compress_ratios") + [0],
        "compress_rope_theta": exact(own("attention.compress_rope_freq_base")),
        "hc_mult": own("hyper_connection.count"),
        "hc_sinkhorn_iters": own("hyper_connection.sinkhorn_iterations"),
        "hc_eps": exact(own("hyper_connection.epsilon")),
        "num_hash_layers": own("hash_layer_count"), "num_nextn_predict_layers": 1,
        "swiglu_limit": own("swiglu_clamp_exp")[0]}
