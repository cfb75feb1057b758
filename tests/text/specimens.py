"""A few small and valid files for each reader of untrusted files. Made in a second, without training a model."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

from headstart.config import TokenizerConfig
from headstart.labs.lab import lab_files
from headstart.text.tokenizer import Tokenizer
from headstart.text.word_vectors import spacy_hash

ROOT = Path(__file__).parents[2]
WORDS = ("awful", "lovely", "cold", "warm", "dull", "bright")
TEXTS = [f'film {i}, "was" {WORDS[i % 6]} — from end to end. Très {WORDS[i % 5]}!' for i in range(12)]
PAIRS = [(f"{c}{v}n", f"{v}n{c}ay") for c in "bdgkl" for v in "aeio"]


def make(folder: Path) -> None:
    """A folder for each reader, with its files."""
    tables(folder / "tables")
    tagged(folder / "tagged")
    plain(folder)
    vectors(folder / "vectors")
    tokenizers(folder / "tokenizers")
    pictures(folder / "images")
    gguf(folder / "gguf")
    settings(folder)
    shutil.copytree(ROOT / "tests" / "golden" / "format-1" / "run", folder / "run")


def tables(here: Path) -> None:
    from pyarrow import Table, ipc, parquet

    here.mkdir()
    rows = [{"text": text, "label": ("bad", "good")[i % 2], "id": i} for i, text in enumerate(TEXTS)]
    for name, mark in (("rows.csv", ","), ("rows.tsv", "\t")):
        lines = [mark.join(['"' + str(v).replace('"', '""') + '"' for v in row.values()]) for row in rows]
        write(here / name, "\n".join([mark.join(rows[0]), *lines]) + "\n")
    write(
        here / "orange.tab",
        "text\tmC#label\nstring\td\nmeta\tclass\n" + "".join(f"{w}\tgood\nnot {w}\tbad\n" for w in WORDS),
    )
    lists = [{"text": text, "labels": [WORDS[i % 3], WORDS[i % 2 + 3]]} for i, text in enumerate(TEXTS)]
    pairs = [{"sentence1": text, "sentence2": TEXTS[-i], "label": i % 2} for i, text in enumerate(TEXTS)]
    for name, records in (("rows.jsonl", rows), ("lists.jsonl", lists), ("pairs.jsonl", pairs)):
        write(here / name, "".join(json.dumps(record) + "\n" for record in records))
    write(here / "rows.json", json.dumps(rows))
    write(here / "amounts.csv", "text,score\n" + "".join(f"film {i},{i * 1.5 % 7}\n" for i in range(20)))
    parquet.write_table(Table.from_pylist(rows), here / "rows.parquet")
    parquet.write_table(Table.from_pylist(lists), here / "lists.parquet", compression="zstd")
    arrow = Table.from_pylist(rows)
    with ipc.new_stream(here / "rows.arrow", arrow.schema) as file:
        file.write_table(arrow)


def tagged(here: Path) -> None:
    here.mkdir()
    sentences = [[("film", "O"), (str(i), "B-NUM"), ("was", "O"), (WORDS[i % 6], "I-NUM")] for i in range(8)]
    write(here / "a.conll", "\n\n".join("\n".join(f"{w} {t}" for w, t in s) for s in sentences) + "\n")
    universal = [[f"{i}\t{w}\t_\t{'XY'[i % 2]}\t_\t_\t0\t_\t_\t_" for i, (w, _) in enumerate(s, 1)] for s in sentences]
    write(here / "a.conllu", "\n\n".join(map("\n".join, universal)) + "\n")
    cells = [{"tokens": [w for w, _ in s], "tags": [t for _, t in s]} for s in sentences]
    write(here / "a.jsonl", "".join(json.dumps(row) + "\n" for row in cells))
    spans = [{"text": f"film {w} was", "spans": [{"start": 5, "end": 5 + len(w), "label": "W"}]} for w in WORDS]
    write(here / "spans.jsonl", "".join(json.dumps(row) + "\n" for row in spans))


def plain(folder: Path) -> None:
    text = "\n".join(TEXTS) + "\n"
    write(folder / "text" / "a.txt", text)
    for name, encoding in (("bom.txt", "utf-8-sig"), ("wide.txt", "utf-16"), ("wider.txt", "utf-32")):
        write(folder / "text" / name, text, encoding)
    rows = "text\n" + "".join(f'"{w} film"\n' for w in WORDS)
    for name, data in (
        ("a.txt.gz", text),
        ("rows.csv.gz", rows),
        ("rows.jsonl.gz", "".join(f'{{"text": "{w}"}}\n' for w in WORDS)),
    ):
        write_bytes(folder / "packed" / name, gzip.compress(data.encode()))
    from pyarrow import compress

    write_bytes(folder / "packed" / "a.txt.zst", compress(text.encode(), "zstd", asbytes=True))
    archives = folder / "archives"
    archives.mkdir()
    for name, mode in (("a.tar", "w"), ("a.tar.gz", "w:gz"), ("a.tgz", "w:xz")):
        with tarfile.open(archives / name, mode) as archive:  # type: ignore[call-overload]
            for member, content in (("b/1.txt", text), ("b/2.csv", rows), ("b/3.jsonl", '{"text": "x"}\n')):
                entry = tarfile.TarInfo(member)
                entry.size = len(content.encode())
                archive.addfile(entry, io.BytesIO(content.encode()))
    write(folder / "pairs" / "pairs.tsv", "".join(f"{a}\t{b}\n" for a, b in PAIRS))
    write(folder / "pairs" / "named.csv", "source,target\n" + "".join(f"{a},{b}\n" for a, b in PAIRS))
    for side, name in enumerate(("a.en", "a.fr")):
        write(folder / "pairs" / name, "".join(f"{pair[side]}\n" for pair in PAIRS))
    rows = "".join(f'{i}.png,"{WORDS[i % 6]} picture, {i}",{i // 2}\n' for i in range(40))
    write(folder / "captions" / "pairs.csv", "file,caption,group\n" + rows)
    write(
        folder / "captions" / "captions.txt",
        "image,caption\n" + "".join(f"{i}.png,a {WORDS[i % 6]}\n" for i in range(30)),
    )


def vectors(here: Path) -> None:
    import msgpack

    listed = f"{len(WORDS)} 3\n" + "".join(f"{word} {i}.5 -1 2e-1\n" for i, word in enumerate(WORDS))
    write(here / "words.vec", listed)
    write(here / "glove.txt", listed.partition("\n")[2])
    write_bytes(here / "words.vec.gz", gzip.compress(listed.encode()))
    write_bytes(
        here / "spacy" / "vocab" / "key2row", msgpack.packb({spacy_hash(w): row for row, w in enumerate(WORDS)})
    )
    table = io.BytesIO()
    np.save(table, np.ones((len(WORDS), 3), np.float32))
    write_bytes(here / "spacy" / "vocab" / "vectors", table.getvalue())


def tokenizers(here: Path) -> None:
    import sentencepiece

    for kind in ("bpe", "word", "wordpiece"):
        made = Tokenizer.train(TEXTS, TokenizerConfig(kind=kind, vocab=0 if kind == "word" else 300))
        write(here / kind / "tokenizer.json", made.to_json())
    for kind, size in (("unigram", 45), ("bpe", 60)):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXTS * 5), model_writer=model, vocab_size=size, model_type=kind, minloglevel=2
        )
        write_bytes(here / f"{kind}.model", model.getvalue())


def pictures(here: Path) -> None:
    here.mkdir()
    colours = Image.fromarray(np.arange(20 * 16 * 3, dtype=np.uint8).reshape(16, 20, 3))
    exif = Image.Exif()
    exif[0x0112] = 6  # turned
    colours.save(here / "plain.png")
    colours.convert("P").save(here / "palette.png", transparency=3)
    Image.fromarray(np.arange(320, dtype=np.uint16).reshape(16, 20) * 200).save(here / "deep.png")
    colours.save(here / "turned.jpg", exif=exif)
    colours.convert("CMYK").save(here / "cmyk.jpg", progressive=True)
    colours.save(here / "a.webp", lossless=True)


def gguf(here: Path) -> None:
    from gguf import GGUFWriter

    here.mkdir()
    writer, width, words = GGUFWriter(here / "model.gguf", "llama"), 8, ["<|endoftext|>", "a", "b", "1", "2", "Ġ", "ab"]
    for add, value in (
        (writer.add_context_length, 16), (writer.add_embedding_length, width), (writer.add_feed_forward_length, width),
        (writer.add_block_count, 1), (writer.add_head_count, 1), (writer.add_head_count_kv, 1), (writer.add_layer_norm_rms_eps, 1e-5),
        (writer.add_rope_freq_base, 1e4), (writer.add_tokenizer_model, "gpt2"), (writer.add_tokenizer_pre, "smollm"),
        (writer.add_token_list, words), (writer.add_token_types, [3, 1, 1, 1, 1, 1, 1]), (writer.add_token_merges, ["a b"]),
    ):  # fmt: skip
        add(value)  # type: ignore[operator]
    inside = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    shapes = {f"blk.0.{name}.weight": (width, width) for name in inside}
    shapes |= {"token_embd.weight": (len(words), width), "output_norm.weight": (width,)}
    shapes |= {"blk.0.attn_norm.weight": (width,), "blk.0.ffn_norm.weight": (width,)}
    for name, shape in shapes.items():
        writer.add_tensor(name, np.ones(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def settings(folder: Path) -> None:
    shutil.copytree(ROOT / "examples", folder / "settings", ignore=shutil.ignore_patterns("keys"))
    (folder / "labs").mkdir()
    for file in lab_files().values():
        shutil.copy(file, folder / "labs")


def write(path: Path, text: str, encoding: str = "utf-8") -> None:
    write_bytes(path, text.encode(encoding))


def write_bytes(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
