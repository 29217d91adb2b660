#!/usr/bin/env python3
"""Cuts a vocabulary down to what a list of text/ids pairs can touch.

usage: trim_vocabulary.py VOCABULARY.gguf[.gz] PAIRS.json OUT.json

A merge or a piece whose text occurs in no text of the pairs never takes part in tokenizing them, so the pairs keep their ids.
OUT.json holds the tokens that are left with their ids in the whole vocabulary.
"""
import gzip
import json
import struct
import sys

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
IDS = ["bos", "eos", "eot", "eom", "unknown", "padding"]
FLAGS = ["add_bos_token", "add_eos_token", "add_space_prefix"]


class Header:
    def __init__(self, path):
        opened = gzip.open(path) if path.endswith(".gz") else open(path, "rb")
        with opened as file:
            self.data = file.read(32 << 20)
        self.at = 8
        self.scalar("Q")
        self.meta = {}
        for _ in range(self.scalar("Q")):
            key = self.text()
            self.meta[key] = self.value(self.scalar("I"))

    def scalar(self, code):
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def text(self):
        length = self.scalar("Q")
        self.at += length
        return self.data[self.at - length : self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            element, count = self.scalar("I"), self.scalar("Q")
            return [self.value(element) for _ in range(count)]
        return self.scalar(SCALARS[kind])


def byte_alphabet():
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {byte: chr(byte) for byte in own}
    for byte in range(256):
        table.setdefault(byte, chr(0x100 + len(table) - len(own)))
    return table


def is_special(text, kind):
    return kind != 1 and "reserved" not in text and "place▁holder" not in text


def main():
    meta = {key[15:]: value for key, value in Header(sys.argv[1]).meta.items() if key.startswith("tokenizer.ggml.")}
    source = json.load(open(sys.argv[2], encoding="utf-8"))
    plain = [pair["text"] for pair in source["pairs"]]
    if meta["model"] == "gpt2":
        table = byte_alphabet()
        written = ["".join(table[byte] for byte in text.encode()) for text in plain]
    else:
        written = ["▁" + text.replace(" ", "▁") for text in plain]
    haystack, special_haystack = "\n\n".join(written), "\n\n".join(plain)

    tokens, kinds, scores = meta["tokens"], meta["token_type"], meta.get("scores")
    named = {meta[name + "_token_id"] for name in IDS if name + "_token_id" in meta}
    needed = {id for pair in source["pairs"] for name in ("ids", "ids_special") for id in pair[name]}
    keep = [
        id
        for id, (text, kind) in enumerate(zip(tokens, kinds))
        if id in named or id in needed or len(text) == 1 or text in haystack or text in special_haystack or is_special(text, kind)
    ]
    kept = {tokens[id] for id in keep}
    merges = [merge for merge in meta.get("merges", []) if merge.replace(" ", "", 1) in haystack]
    assert all(part in kept for merge in merges for part in merge.split(" "))

    out = {"origin": f"{source['vocab'] if 'vocab' in source else sys.argv[1]}, cut by trim_vocabulary.py; pairs from llama.cpp v0.5.0"}
    out |= {"model": meta["model"], "pre": meta["pre"]}
    out |= {name + "_token_id": meta[name + "_token_id"] for name in IDS if name + "_token_id" in meta}
    out |= {name: meta[name] for name in FLAGS if name in meta}
    lines = [json.dumps(out)[:-1] + ', "tokens": [']
    rows = [[id, tokens[id], kinds[id]] + ([scores[id]] if scores else []) for id in keep]
    lines.append(",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + '], "merges": [')
    lines.append(",\n".join(json.dumps(merge, ensure_ascii=False) for merge in merges) + '], "pairs": [')
    lines.append(",\n".join(json.dumps(pair) for pair in source["pairs"]) + "]}")
    with open(sys.argv[3], "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


main()
