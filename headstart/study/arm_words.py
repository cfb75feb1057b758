"""The kinds of arms in words, for a verdict. No torch."""

from __future__ import annotations

PRETRAINED = ("prompt", "full", "last", "lora", "contrastive", "frozen", "zero-shot", "stack", "hybrid", "bi-encoder")
# Which arm of two is spoken of: the first here.
KINDS = (
    *PRETRAINED, "scratch", "static", "lexicon", "tfidf", "overlap", "second-only", "first-only", "crf",
    "most-frequent-tag", "majority", "constant",
)  # fmt: skip
WORDS = {
    "tfidf": "TF-IDF with logistic regression",
    "static": "averaged word vectors with logistic regression",
    "lexicon": "a sentiment lexicon (VADER)",
    "overlap": "the words that both texts share",
    "first-only": "the first text alone (TF-IDF)",
    "second-only": "the second text alone (TF-IDF)",
    "crf": "a conditional random field",
    "most-frequent-tag": "the most frequent tag of each word",
    "majority": "always predicting the majority class",
    "constant": "always predicting the same",
}
SHORT = {
    "tfidf": "TF-IDF",
    "static": "averaging word vectors",
    "lexicon": "a sentiment lexicon",
    "overlap": "word overlap",
    "first-only": "the first text alone",
    "second-only": "the second text alone",
    "crf": "a conditional random field",
    "most-frequent-tag": "the most frequent tag of each word",
    "majority": "the majority class",
    "constant": "a constant answer",
}
TRAINED = {  # what a page says of the arms that start from a base
    "scratch": "the shape of the base, not pretrained",
    "frozen": "a new head on the base as it is",
    "full": "the whole base, fine-tuned",
    "lora": "the base with LoRA adapters",
    "contrastive": "the base, fine-tuned on pairs of rows (SetFit)",
    "hybrid": "the base as it is, and TF-IDF",
    "stack": "the fine-tuned base, and TF-IDF",
    "bi-encoder": "both texts by the base as it is",
    "zero-shot": "the probabilities of the label words, without labels",
    "prompt": "the base, fine-tuned on a prompt",
    "prompt:frozen": "a new head at the end of a prompt",
    "prompt:lora": "LoRA adapters on a prompt",
}
