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
