"""One tiny and valid specimen of every kind of file and folder that Headstart opens, with the commands that open it."""

from __future__ import annotations

import fcntl
import gzip
import io
import json
import os
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

SHORT = ["--set", "train.steps=1", "--set", "train.tensorboard=false", "--set", "train.threads=1", "--quiet"]
NANO = ["--unit", "line", "--size", "nano", "--context", "16", "--set", "samples=[]", "--out", "{out}", *SHORT]
LABELS, WORDS = ("bad", "good"), ("awful", "lovely", "cold", "warm", "dull", "bright")


@dataclass(frozen=True)
class Kind:
    """What is damaged and who opens it; `{it}` is the damaged copy, `{out}` a new folder, `{name}` a whole specimen."""

    specimen: str  # on the shelf
    commands: tuple[str, ...]
    files: str = ""  # of a folder, those that are damaged: a pattern below it
    share: float = 1.0  # of the usual number of cases, for what is slow
    whole: int = 0  # exit code where nothing is damaged
    moved: bool = False  # whether its JSON names the folder that it was made in
    unsealed: bool = False  # whether its model has no manifest, as those of older versions
    asked: bool = False  # whether more memory than there is may be what it asks for


CHECK = ("data check {it}", "data table {it} --out {out}/rows.csv")
ROWS = (*CHECK, "evaluate {clf} {it}", "predict {clf} --file {it}")
TUNE = f"finetune {{texts}}/rows.csv --base {{it}} --out {{out}} {' '.join(SHORT)}"
USE_LM = (
    "generate {it} hello --tokens 2", "params {it}", "evaluate {it} {texts}/text.txt", "inspect {it} hello", "runs {it}",
    "export {it} --out {out}", "pretrain --out {it} --resume --quiet", TUNE,
)  # fmt: skip
USE_CLF = (
    "predict {it} lovely", "params {it}", "evaluate {it} {texts}/rows.csv", "inspect {it} lovely", "runs {it}",
    "export {it} --out {out}", "finetune --out {it} --resume --quiet",
)  # fmt: skip
USE_TRANSLATOR = (
    "translate apply {it} ban",
    "translate evaluate {it} {texts}/pairs.tsv",
    "params {it}",
    "runs {it}",
    "translate train --out {it} --resume --quiet",
)
USE_MATCHER = ("search {pictures} red --model {it} --quiet", "match evaluate {it} {pictures} --quiet", "runs {it}")
VECTORS = (f"pretrain {{texts}}/text.txt --vectors {{it}} {' '.join(NANO)}",)
FILES = "[!.]*.*"  # of a run, apart from its folders
KINDS = {
    "text": Kind("texts/text.txt", (*CHECK, "evaluate {lm} {it}", "predict {clf} --file {it}")),
    "csv": Kind("texts/rows.csv", ROWS),
    "tsv": Kind("texts/rows.tsv", ROWS),
    "jsonl": Kind("texts/rows.jsonl", ROWS),
    "json": Kind("texts/rows.json", CHECK),
    "parquet": Kind("texts/rows.parquet", ROWS),
    "arrow": Kind("texts/rows.arrow", ROWS),
    "folder of texts": Kind("texts/folder", ROWS[:3], "*/*"),
    "tar": Kind("texts/folder.tar", CHECK[1:]),
    "tar.gz": Kind("texts/folder.tar.gz", CHECK[1:]),
    "pairs": Kind("texts/pairs.tsv", ("translate evaluate {translator} {it}",), share=0.5),
    "two files of pairs": Kind("texts/sides", ("translate evaluate {translator} {it}/a.en {it}/a.fr",), "a.*", share=0.5),
    "vec": Kind("texts/words.vec", VECTORS, share=0.3),
    "vec.gz": Kind("texts/words.vec.gz", VECTORS, share=0.3),
    "word2vec bin": Kind("texts/words.bin", VECTORS, whole=3, share=0.3),
    "spacy vectors": Kind("texts/spacy", VECTORS, "vocab/*", share=0.3),
    "sentencepiece": Kind("texts/pieces.model", ("data check {texts}/text.txt --tokenizer {it}",)),
    "tokenizer": Kind("texts/tokenizer.json", ("data check {texts}/text.txt --tokenizer {it}",)),
    "gguf": Kind("gguf", ("inspect {it} ab", TUNE), "*", share=0.2),
    "foreign model": Kind("bert", ("inspect {it} lovely", TUNE), "*", share=0.3),
    "foreign language model": Kind("gpt2", ("inspect {it} lovely", TUNE), "*", share=0.2),
    "onnx": Kind("clf.onnx", ("predict {it} lovely",)),
    "pictures": Kind("pictures", ("search {it} red --model {matcher} --quiet", "match classify {matcher} {it} --labels red,blue --quiet"), "images/*", share=0.5),
    "captions": Kind("pictures", ("match evaluate {matcher} {it} --quiet",), "pairs.csv"),
    "language model": Kind("lm", USE_LM, "model/*", share=0.3),
    "unsealed language model": Kind("lm", USE_LM, "model/*", share=0.3, unsealed=True),
    "run of a language model": Kind("lm", USE_LM, FILES, share=0.3),
    "checkpoints": Kind("stopped", ("pretrain --out {it} --resume --quiet",), "checkpoints/*/*", share=0.5),
    "stopped run": Kind("stopped", ("pretrain --out {it} --resume --quiet", "runs {it}"), FILES),
    "classifier": Kind("clf", USE_CLF, "model/*", share=0.5),
    "unsealed classifier": Kind("clf", USE_CLF, "model/*", unsealed=True, share=0.5),
    "run of a classifier": Kind("clf", USE_CLF, FILES),
    "unsealed prompted classifier": Kind("asked", USE_CLF, "model/*.json", unsealed=True, share=0.5),
    "onnx with a prompt": Kind("asked.onnx", ("predict {it} lovely",), share=0.5),
    "translator": Kind("translator", USE_TRANSLATOR, "model/*"),
    "unsealed translator": Kind("translator", USE_TRANSLATOR, "model/*", unsealed=True),
    "run of a translator": Kind("translator", USE_TRANSLATOR, FILES),
    "matcher": Kind("matcher", USE_MATCHER, "model/*", share=0.3),
    "unsealed matcher": Kind("matcher", USE_MATCHER, "model/*", share=0.3, unsealed=True),
    "run of a matcher": Kind("matcher", USE_MATCHER, FILES),
    "study": Kind("study", ("report {it}", "runs {it}", "compare --config {it}/study.toml --out {it} --quiet"), FILES, share=0.15),
    "cells of a study": Kind("study", ("report {it}", "runs {it}"), "cells/*/*.json*", share=0.1),
    "grid of translators": Kind("ladder", ("translate grid {texts}/pairs.tsv --model gru --hidden 8 --seeds 1 --epochs 1 --threads 1 --quiet --out {it} --set train.tensorboard=false", "runs {it}"), "**/*.json*", share=0.1),
    "lab": Kind("texts/lab.toml", ("lab run {it} --out {out}/lab --data {texts} --quiet",), whole=3),
    "folder of a lab": Kind("lab", ("lab table {it}", "lab run {texts}/lab.toml --quick --quiet --out {it}"), "**/*.json", moved=True, share=0.3),
    "settings": Kind("texts/pretrain.toml", ("pretrain --config {it} --dry-run --set train.threads=1",), asked=True),
    "settings of a study": Kind("study", ("compare --config {it}/study.toml --out {out}/study --dry-run",), "study.toml", share=0.3, asked=True),
}  # fmt: skip


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kind" in metafunc.fixturenames:
        metafunc.parametrize("kind", KINDS.values(), ids=KINDS)


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, Path]:
    """The folder of every specimen by its name; `texts` holds the files. Made once, also for several workers."""
    own = tmp_path_factory.getbasetemp()
    made = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "shelf"
    with (made.parent / "shelf.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = made.with_name("shelf.done")
        if not done.exists():
            shutil.rmtree(made, ignore_errors=True)
            _make(made, request.getfixturevalue("pictures"), request.getfixturevalue("matcher"))
            done.touch()
    return {path.name: path for path in made.iterdir()}


def _make(made: Path, pictures: Path, matcher: Path) -> None:
    made.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADSTART_CACHE", str(made.with_name("shelf-cache")))
        patch.chdir(made)
        _texts(made / "texts")
        _runs(made)
        _elsewhere(made)
        _studies(made)
    for name, folder in {"pictures": pictures, "matcher": matcher}.items():
        shutil.copytree(folder, made / name)
    rows = (made / "pictures" / "pairs.csv").read_text().splitlines()[:9]
    _write(made / "pictures" / "pairs.csv", "\n".join(rows) + "\n")
    for image in (made / "pictures" / "images").iterdir():
        if not any(row.startswith(f"{image.name},") for row in rows):
            image.unlink()


def _texts(here: Path) -> None:
    import msgpack
    from pyarrow import csv, ipc, parquet

    from headstart.text.word_vectors import spacy_hash

    here.mkdir()
    texts = [f"film {i} was {WORDS[i % 6]} from end to end" for i in range(30)]
    rows = [{"text": text, "label": LABELS[i % 2]} for i, text in enumerate(texts)]
    _write(here / "text.txt", "\n".join(texts) + "\n")
    for name, mark in (("rows.csv", ","), ("rows.tsv", "\t")):
        _write(here / name, "".join(f"{a}{mark}{b}\n" for a, b in [("text", "label"), *(r.values() for r in rows)]))
    _write(here / "rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    _write(here / "rows.json", json.dumps(rows))
    table = csv.read_csv(here / "rows.csv")
    parquet.write_table(table, here / "rows.parquet")
    with ipc.new_stream(here / "rows.arrow", table.schema) as file:
        file.write_table(table)
    for i, row in enumerate(rows[:6]):
        _write(here / "folder" / row["label"] / f"{i}.txt", row["text"])
    for name, mode in (("folder.tar", "w"), ("folder.tar.gz", "w:gz")):
        with tarfile.open(here / name, mode) as archive:
            archive.add(here / "folder", "folder")
    pairs = [(f"{c}{v}n", f"{v}n{c}ay") for c in "bdgkl" for v in "aeio"]
    _write(here / "pairs.tsv", "".join(f"{a}\t{b}\n" for a, b in pairs))
    for side, name in enumerate(("a.en", "a.fr")):
        _write(here / "sides" / name, "".join(f"{pair[side]}\n" for pair in pairs))
    vectors = f"{len(WORDS)} 3\n" + "".join(f"{word} {i}.5 -1 2e-1\n" for i, word in enumerate(WORDS))
    _write(here / "words.vec", vectors)
    (here / "words.vec.gz").write_bytes(gzip.compress(vectors.encode()))
    numbers = b"".join(w.encode() + b" " + np.ones(3, np.float32).tobytes() + b"\n" for w in WORDS)
    (here / "words.bin").write_bytes(f"{len(WORDS)} 3\n".encode() + numbers)
    (here / "spacy" / "vocab").mkdir(parents=True)
    rows_of = {spacy_hash(word): row for row, word in enumerate(WORDS)}
    (here / "spacy" / "vocab" / "key2row").write_bytes(msgpack.packb(rows_of))
    with (here / "spacy" / "vocab" / "vectors").open("wb") as file:
        np.save(file, np.ones((len(WORDS), 3), np.float32))
    _tokenizers(here, texts)
    _write(here / "pretrain.toml", _PRETRAIN.format(text=here / "text.txt"))
    _write(here / "lab.toml", _LAB)


def _tokenizers(here: Path, texts: list[str]) -> None:
    import sentencepiece

    from headstart.config import TokenizerConfig
    from headstart.text.tokenizer import Tokenizer

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts * 5), model_writer=model, vocab_size=45, model_type="unigram", minloglevel=2
    )
    (here / "pieces.model").write_bytes(model.getvalue())
    _write(here / "tokenizer.json", Tokenizer.train(texts, TokenizerConfig(kind="bpe", vocab=270)).to_json())


def _runs(made: Path) -> None:
    from headstart.config import FinetuneConfig, PretrainConfig, TranslateConfig
    from headstart.jobs.finetune import finetune
    from headstart.jobs.pretrain import pretrain
    from headstart.jobs.translate import translate
    from headstart.schema import parse
    from headstart.use.onnx_export import export_onnx

    texts = made / "texts"
    train = {"steps": 2, "batch_size": 4, "eval_every": 1, "log_every": 1, "threads": 1, "tensorboard": False}
    shape = {"layers": 1, "heads": 1, "width": 8, "ff": 8, "context": 16}
    base: dict[str, Any] = {"data": {"paths": [str(texts / "text.txt")], "unit": "line"}, "samples": []}
    base |= {"tokenizer": {"kind": "word"}, "model": shape, "train": {**train, "keep_checkpoints": True}}
    pretrain(parse(PretrainConfig, base), made / "lm")
    shutil.copytree(made / "lm", made / "stopped")
    (made / "stopped" / "result.json").unlink()
    shutil.rmtree(made / "lm" / "checkpoints")
    clf = {"base": str(made / "lm"), "data": {"train": str(texts / "rows.csv")}, "train": train}
    finetune(parse(FinetuneConfig, clf), made / "clf")
    asked = {"prompt": "{text} it was", "label_words": {"bad": "awful", "good": "lovely"}, "calibrate": True}
    finetune(parse(FinetuneConfig, {**clf, **asked}), made / "asked")
    pairs = {"data": {"pairs": [str(texts / "pairs.tsv")]}, "model": {"kind": "gru", "hidden": 8}, "train": train}
    translate(parse(TranslateConfig, pairs), made / "translator")
    export_onnx(made / "clf", made / "clf.onnx")
    export_onnx(made / "asked", made / "asked.onnx")


def _elsewhere(made: Path) -> None:
    import transformers

    from headstart.text.tokenizer import Tokenizer

    torch.manual_seed(0)
    tokenizer = Tokenizer.load(made / "lm" / "model" / "tokenizer.json")
    common = {"vocab_size": tokenizer.size, "pad_token_id": tokenizer.pad}
    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    bert = transformers.BertConfig(**common, **small, max_position_embeddings=16)
    gpt2 = transformers.GPT2Config(**common, n_embd=8, n_layer=1, n_head=1, n_positions=16)
    for name, model in (("bert", transformers.BertModel(bert)), ("gpt2", transformers.GPT2LMHeadModel(gpt2))):
        model.save_pretrained(made / name)
        _write(made / name / "tokenizer.json", tokenizer.to_json())
    llama = transformers.LlamaConfig(vocab_size=7, num_key_value_heads=1, tie_word_embeddings=True, **small)
    (made / "gguf").mkdir()
    _gguf(made / "gguf" / "model.gguf", transformers.LlamaForCausalLM(llama))


def _gguf(file: Path, model: Any) -> None:
    import gguf

    c, writer = model.config, gguf.GGUFWriter(file, "llama")
    writer.add_context_length(16)
    writer.add_embedding_length(c.hidden_size)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_block_count(c.num_hidden_layers)
    writer.add_head_count(c.num_attention_heads)
    writer.add_head_count_kv(c.num_key_value_heads)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(["<|endoftext|>", "a", "b", "1", "2", "Ġ", "ab"])
    writer.add_token_types([3, 1, 1, 1, 1, 1, 1])
    writer.add_token_merges(["a b"])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, c.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        if name != "lm_head.weight":
            writer.add_tensor(names.get_name(name, (".weight",)), tensor.numpy().astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _studies(made: Path) -> None:
    from typer.testing import CliRunner

    from headstart.cli import app
    from headstart.schema import parse
    from headstart.study.plan import StudyConfig
    from headstart.study.study import Study

    texts, train = made / "texts", {"batch_size": 8, "threads": 1}
    plan = {
        "data": {"train": str(texts / "rows.csv")},
        "bases": (str(made / "lm"),),
        "arms": ("majority", "scratch", "frozen"),
    }
    plan |= {"seeds": 2, "rates": (1e-3,), "least_steps": 1, "finetune": {"epochs": 1, "train": train}}
    Study.run(parse(StudyConfig, plan), made / "study")
    for kind, number in (("grid of translators", 0), ("folder of a lab", 1)):
        places = {"{texts}": texts, "{it}": made / KINDS[kind].specimen}
        words = [str(places.get(word, word)) for word in KINDS[kind].commands[number].split(" ")]
        done = CliRunner().invoke(app, [word.replace("{texts}", str(texts)) for word in words])
        assert done.exit_code == 0, done.output


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


_PRETRAIN = """
objective = "causal"
samples = ["film", ""]
[data]
paths = ["{text}"]
unit = "line"
valid_fraction = 0.1
[tokenizer]
kind = "bpe"
vocab = 270
[model]
layers = 1
heads = 2
width = 8
ff = 16
context = 16
dropout = 0.1
[train]
steps = 2
batch_size = 4
lr = 0.001
warmup = 0.1
"""
_LAB = """
title = "Counting"
question = "How long are the lines?"
verdict = ["check: warnings[0]"]
[rows]
T5 = "lengths"
[[data]]
what = "a text"
files = ["some/text.txt"]
source = "https://example.org"
licence = "public domain"
quick = "the pack small-corpus"
[[step]]
name = "check"
shows = "Their lengths, counted."
command = "headstart data check {data}/some/text.txt --plot {out}/map.png"
quick = "headstart data check small-corpus --plot {out}/map.png"
[[figure]]
row = "T5"
what = "rows"
reference = 4
value = "check: splits.train.rows"
better = "equal"
[[table]]
caption = "longest lines"
[table.columns]
rows = "check: splits[*].rows"
words = "check: splits[*].words.max"
[[picture]]
file = "map.png"
caption = "where they are"
[[answer]]
question = "How many?"
text = "There are {rows:,} of them."
[answer.values]
rows = "check: splits.train.rows"
"""
