"""The bodies of answers, as the schema has them."""

from __future__ import annotations

from typing import (
    Any,
    Literal,
    NotRequired,  # pydantic asks for this one before Python 3.12
)

from typing_extensions import TypedDict


class ModelCard(TypedDict):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    name: str  # of the run, from the folder on
    kind: str  # pretrain, finetune, translate or match


class ModelList(TypedDict):
    object: Literal["list"]
    data: list[ModelCard]


class Logprobs(TypedDict):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(TypedDict):
    index: int
    text: str
    logprobs: Logprobs | None
    finish_reason: str | None


class Usage(TypedDict):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Completion(TypedDict):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage


class Scored(TypedDict):
    label: str
    score: float
    word: NotRequired[str]  # of a tagger


class Info(TypedDict):
    model_id: str
    model_dtype: str
    max_input_length: int
    max_client_batch_size: int
    labels: list[str]
    model_type: dict[str, dict[str, str]]


class Predictions(TypedDict):
    predictions: list[str | list[str] | float]


class RankedTranslation(TypedDict):
    translation: str
    score: float  # log probability per token


class Translated(RankedTranslation):
    source: str
    unknown: list[str]  # parts of the source that the model has never seen
    finished: bool
    n_best: list[RankedTranslation]


class FoundText(TypedDict):
    rank: int
    score: float
    other_rank: int | None
    row: int
    copies: int
    text: str


class FoundTexts(TypedDict):
    query: str
    model: str
    texts: int
    by_embedding: list[FoundText]  # the score is a cosine
    by_words: list[FoundText]  # the score is BM25


class FoundImage(TypedDict):
    file: str
    score: float  # a cosine
    rank: int
    own_caption: str
    thumbnail: str  # a PNG as a data: address


class FoundImages(TypedDict):
    caption: str
    images: int
    found: list[FoundImage]


class Tokenized(TypedDict):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str]


class Detokenized(TypedDict):
    prompt: str


class TokenizerInfo(TypedDict):
    model: str
    vocab_size: int
    bos_token: str
    eos_token: str
    pad_token: str
    bos_token_id: int
    eos_token_id: int
    pad_token_id: int
    tokenizer_sha256: str
    model_max_length: int


class FileFacts(TypedDict):
    id: str
    name: str
    bytes: int


class RunFacts(TypedDict):
    """What `headstart runs` tells of a run or study, with its id in place of its path."""

    id: str
    name: str
    kind: Literal["run", "study"]
    record: dict[str, Any]
    result: NotRequired[dict[str, Any]]
