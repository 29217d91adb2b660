"""The tokenizer of a GGUF model as tokenizer.json and its companions, in the forms that publishers
use. Part of make_checkpoint.py; standard library only."""

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = QWEN2.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(
    r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
FRONT = r"[^\r\n\p{L}\p{N}]?"
WORDS = FRONT + UPPER + "*" + LOWER + "+{0}|" + FRONT + UPPER + "+" + LOWER + "*{0}|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT4O = WORDS.replace("{0}", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?") + r"\p{N}{1,3}" + REST
TEKKEN = WORDS.replace("{0}", "") + r"\p{N}" + REST
# As DeepSeek writes them: characters and line ends themselves.
DEEPSEEK_V3 = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
               r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^""" + "\r\n" +
               r"\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[" + "\r\n" + r"]*|\s*[" + "\r\n" +
               r"]+|\s+(?!\S)|\s+"]
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
GPT2_BYTES = dict(BYTES, use_regex=True)


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def deepseek_llm():
    """The lists of ranges come from the specification's text, spelt with escapes."""
    from make_checkpoint_patterns import DEEPSEEK_LLM
    return sequence(*[split(p) for p in DEEPSEEK_LLM], BYTES)


def pre_tokenizer(name):
    digits = {"type": "Digits", "individual_digits": True}
    known = {
        "gpt-2": GPT2_BYTES, "olmo": GPT2_BYTES, "smollm": sequence(digits, GPT2_BYTES),
        "llama-bpe": sequence(split(LLAMA3), BYTES), "glm4": sequence(split(LLAMA3), BYTES),
        "qwen2": sequence(split(QWEN2), BYTES), "qwen35": sequence(split(QWEN35), BYTES),
        "gpt-4o": sequence(dict(split(GPT4O), behavior="Removed", invert=True), BYTES),
        "tekken": sequence(split(TEKKEN), BYTES),
        "deepseek-v3": sequence(*[split(p) for p in DEEPSEEK_V3], BYTES),
    }
    known["joyai-llm"] = known["deepseek-v3"]
    return deepseek_llm() if name == "deepseek-llm" else known[name]


def added(tokens, kinds):
    return [{"id": i, "content": text, "special": kinds[i] in (2, 3), "normalized": False,
             "lstrip": False, "rstrip": False, "single_word": False}
            for i, text in enumerate(tokens) if kinds[i] in (2, 3, 4)]


def byte_level(meta, tokens, kinds):
    pre = meta["tokenizer.ggml.pre"]
    merges = meta["tokenizer.ggml.merges"]
    if len(merges) % 2 == 0:  # the newer of the two forms
        merges = [merge.split(" ") for merge in merges]
    return {
        "normalizer": {"type": "NFC"} if pre == "qwen2" else None,
        "pre_tokenizer": pre_tokenizer(pre),
        "model": {"type": "BPE", "unk_token": None, "byte_fallback": False,
                  "ignore_merges": pre in ("llama-bpe", "tekken"),
                  "vocab": {t: i for i, t in enumerate(tokens) if kinds[i] == 1}, "merges": merges},
    }


def pieces(meta, tokens, kinds):
    """Merges in the order of the scores of what they make."""
    scores = meta["tokenizer.ggml.scores"]
    ids = {t: i for i, t in enumerate(tokens) if kinds[i] == 1}
    merges = []
    for text, i in ids.items():
        for cut in range(1, len(text)):
            if text[:cut] in ids and text[cut:] in ids:
                merges.append((-scores[i], i, f"{text[:cut]} {text[cut:]}"))
    prefix = meta.get("tokenizer.ggml.add_space_prefix", True)
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    return {
        "normalizer": {"type": "Sequence", "normalizers":
                       ([{"type": "Prepend", "prepend": "▁"}] if prefix else []) + [replace]},
        "pre_tokenizer": None,
        "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": True,
                  "vocab": {t: i for i, t in enumerate(tokens)},
                  "merges": [merge[2] for merge in sorted(merges)]},
    }


def files(meta):
    """tokenizer.json and tokenizer_config.json by name."""
    tokens, kinds = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    spm = meta["tokenizer.ggml.model"] == "llama"
    tokenizer = {"version": "1.0", "added_tokens": added(tokens, kinds), "post_processor": None,
                 **(pieces if spm else byte_level)(meta, tokens, kinds)}
    config = {}
    for name in ("bos", "eos", "unk", "pad"):
        key = {"unk": "unknown", "pad": "padding"}.get(name, name)
        i = meta.get(f"tokenizer.ggml.{key}_token_id")
        if i is not None:
            text = tokens[i]
            config[name + "_token"] = {"content": text} if name == "eos" else text
    for flag in ("add_bos_token", "add_eos_token"):
        if "tokenizer.ggml." + flag in meta:
            config[flag] = meta["tokenizer.ggml." + flag]
    if "tokenizer.chat_template" in meta:
        config["chat_template"] = meta["tokenizer.chat_template"]
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": config}
