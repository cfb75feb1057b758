"""The model cards: README.md of model/, for each kind of run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headstart.config import FinetuneConfig, MatchConfig, PretrainConfig, TranslateConfig
from headstart.quantities import counted
from headstart.runs.card import named, plain
from headstart.shapes import HuggingFaceConfig, TransformerConfig
from headstart.text.split import Labelled


def language_model_card(cfg: PretrainConfig, result: Mapping[str, Any]) -> str:
    model, valid = cfg.model, result["valid"]
    if valid and cfg.teacher:
        score = (
            f"its vectors of validation text and the teacher's have a cosine similarity of {valid['similarity']:.3f}"
        )
    else:
        score = f"validation loss {valid['loss']:.4f} nats per token" if valid else "no validation text was held out"
    match model:
        case TransformerConfig():
            kind = f"Preset {model.preset}"
        case HuggingFaceConfig():
            kind = f"A {model.model_type} model"
        case _:
            kind = "A Universal Sentence Encoder"
    title = f"base distilled from {named(cfg.teacher)}" if cfg.teacher else f"{cfg.objective} language model"
    base = f"from {named(cfg.base)} " if cfg.base else ""
    return (
        f"# A {title}\n\n{kind}, {model.layers} layers, width {model.width}, {result['parameters']:,} parameters; "
        f"trained by Headstart {base}for {counted(result['steps'], 'step')} ({result['tokens']:,} tokens), seed "
        f"{cfg.train.seed}: {score}.\n\nText: {named(*cfg.data.paths)}. "
        f"{f'Word vectors: {named(cfg.vectors)}. ' if cfg.vectors else ''}Its settings are in config.toml of the run.\n"
    )


def classifier_card(cfg: FinetuneConfig, data: Labelled, result: Mapping[str, Any]) -> str:
    test, target = result["test"], data.target
    low, high = test["interval"] if test and target.task == "classify" else (0, 0)
    if target.task != "classify":
        part, scores = ("test", test) if test else ("validation", result["valid"])
        told = ", ".join(f"{target.titles[key]} {scores[key]:.4f}" for key in target.measures) if scores else ""
        score = f"On {scores['rows']} {part} rows: {told}." if scores else "No rows were held out to score it on."
    else:
        score = _class_score(data, result, low, high)
    start = "fresh weights" if cfg.init == "scratch" else f"the base {named(cfg.base)}"
    contrastive = (
        "The base was fine-tuned on pairs of texts of the same and of different classes (contrastive, as in SetFit); the "
        "head is a logistic regression on its embeddings. "
        if cfg.objective == "contrastive"
        else ""
    )
    title = target.card + ("" if target.numeric else f": {', '.join(map(plain, data.labels))}")
    temperature = result["calibration"]["temperature"]
    scaled = ""
    if target.task == "classify":
        scaled = (
            f" The logits are divided by a temperature of {temperature:.3f}, fitted on {len(data.valid)} validation rows."
            if temperature is not None
            else f" The probabilities are not calibrated ({result['calibration']['reason']})."
        )
    return (
        f"# {title}\n\nTrained by Headstart from {start} "
        f"(trained: {cfg.scope}) on {len(data.train)} rows of {named(cfg.data.train)}, seed {cfg.train.seed}. "
        f"{contrastive}{score}{scaled}\n"
    )


def _class_score(data: Labelled, result: Mapping[str, Any], low: float, high: float) -> str:
    test = result["test"]
    return (
        f"Accuracy on {test['rows']} test rows: {test['accuracy']:.4f} (95 % interval {low:.4f} to {high:.4f})."
        if test
        else f"Accuracy on {len(data.valid)} validation rows: {result['valid']['accuracy']:.4f}."
        if result["valid"]
        else "No rows were held out to score it on."
    )


def translator_card(cfg: TranslateConfig, result: Mapping[str, Any]) -> str:
    part = "test" if result["test"] else "validation"
    scores = result["test"] or result["valid"]
    return (
        f"# A translator ({cfg.model.kind}, hidden size {cfg.model.hidden})\n\n{result['parameters']:,} parameters, "
        f"trained by Headstart for {counted(result['steps'], 'step')} on {named(*cfg.data.pairs)}, seed "
        f"{cfg.train.seed}. On {scores['rows']} {part} sources: loss {scores['loss']:.4f} nats per target token, exact "
        f"match {scores['exact_match']['value']:.4f}.\n"
    )


def matcher_card(cfg: MatchConfig, result: Mapping[str, Any]) -> str:
    part = "test" if result["test"] else "valid"
    scores = result[part]
    way = scores["text_to_image"]
    recalls = ", ".join(f"{100 * way[k]['value']:.1f} % ({k})" for k in way)
    return (
        f"# Captions and images ({named(cfg.text, cfg.image)})\n\nTrained by Headstart (trained: {cfg.scope}) on "
        f"{named(cfg.data.pairs)}, seed {cfg.train.seed}. Of {scores['captions']} {part} captions, the image among "
        f"{scores['images']} was found: {recalls}.\n"
    )
