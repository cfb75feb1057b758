"""Labels, embeddings and tokens over HTTP: the routes of text-embeddings-inference, MLflow's scoring server and lm-eval."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from headstart.errors import DataError
from headstart.serve.answers import Detokenized, Info, Predictions, Scored, Tokenized, TokenizerInfo
from headstart.serve.registry import Model
from headstart.serve.requests import (
    DetokenizeRequest,
    EmbedRequest,
    InvocationsRequest,
    PredictRequest,
    SimilarityRequest,
    TokenizeRequest,
)
from headstart.serve.studio import Studio, studio_of
from headstart.strict_json import to_json
from headstart.targets.target import Target
from headstart.text.inputs import input_of, lacks_text, text_of

router = APIRouter(tags=["scoring"])


async def labelled(studio: Studio, request: Request, wanted: str | None, texts: list[str]) -> list[tuple[Target, Any]]:
    """What was predicted for each text: the target of the model, and the record of `headstart predict`."""
    if any(map(lacks_text, texts)):
        raise DataError("A text to label is blank.", "DATA_BLANK")
    model = await studio.model(wanted, "finetune")

    def predict(several: list[str]) -> list[Any]:
        found = studio.models.classifier(model, len(several))
        return [(found.target, record) for record in found.predict(several)]

    what = f"predict {input_of(texts)}"  # which are batched together
    return await studio.answers(request, model, what, predict, texts, beside=True)


@router.post("/predict", response_model=list[Scored] | list[list[Scored]])
async def predict(request: Request, asked: PredictRequest) -> Response:
    """The labels of each text with their scores, best first; of one text, without the outer list."""
    one = isinstance(asked.inputs, str)
    texts = (
        [asked.inputs]
        if isinstance(asked.inputs, str)
        else [t if isinstance(t, str) else text_of(t) for t in asked.inputs]
    )
    found = await labelled(studio_of(request), request, asked.model, texts)
    scored: list[list[Scored]] = [target.scored(record) for target, record in found]
    return Response(to_json(scored[0] if one else scored), media_type="application/json")


@router.post("/embed")
async def embed(request: Request, asked: EmbedRequest) -> list[list[float]]:
    """One vector for each text."""
    studio = studio_of(request)
    model = await studio.model(asked.model, "pretrain", "finetune")
    texts = [asked.inputs] if isinstance(asked.inputs, str) else list(asked.inputs)
    what = "embed" if asked.normalize else "embed as it is"
    return await studio.answers(
        request, model, what, lambda t: studio.models.encoder(model).embed(t, asked.normalize), texts
    )


@router.post("/similarity")
async def similarity(request: Request, asked: SimilarityRequest) -> list[float]:
    """The cosine of each sentence with the source."""
    studio = studio_of(request)
    model = await studio.model(asked.model, "pretrain", "finetune")
    texts = [asked.inputs.source_sentence, *asked.inputs.sentences]
    source, *others = await studio.answers(
        request, model, "embed", lambda t: studio.models.encoder(model).embed(t), texts
    )
    return [sum(a * b for a, b in zip(source, other, strict=True)) for other in others]


@router.get("/info")
async def info(request: Request, model: str | None = None) -> Info:
    """What a model is, as text-embeddings-inference describes it."""
    studio = studio_of(request)
    found = await studio.model(model, "pretrain", "finetune")
    loaded = await studio.answers(request, found, "load", lambda _: [studio.models.encoder(found)], [None])
    saved = loaded[0].saved
    return {
        "model_id": found.id, "model_dtype": "float32", "max_input_length": saved.model.base.max_len,
        "max_client_batch_size": studio.settings.limits.batch, "labels": list(saved.head.labels),
        "model_type": {"classifier": {}} if saved.head.labels else {"embedding": {}},
    }  # fmt: skip


@router.post("/invocations")
async def invocations(request: Request, asked: InvocationsRequest) -> Predictions:
    """The label of each text, as MLflow's scoring server answers."""
    given = [
        x for x in (asked.dataframe_split, asked.dataframe_records, asked.inputs, asked.instances) if x is not None
    ]
    if len(given) != 1:
        raise DataError("Give one of dataframe_split, dataframe_records, inputs and instances.", "DATA_FORMAT")
    if asked.dataframe_split:
        names, rows = asked.dataframe_split.columns, asked.dataframe_split.data
        if any(len(row) != len(names) for row in rows):
            raise DataError("A row of dataframe_split has not as many cells as there are columns.", "DATA_COLUMNS")
        records = [dict(zip(names, row, strict=True)) for row in rows]
    else:
        records = asked.dataframe_records or []
    texts = asked.inputs or asked.instances or [_text_of(record) for record in records]
    if not texts:
        raise DataError("There are no rows.", "DATA_EMPTY")
    found = await labelled(studio_of(request), request, asked.model, list(texts))
    return {"predictions": [record["label"] for _, record in found]}


def _text_of(record: dict[str, str]) -> str:
    if "text" in record:
        return record["text"]
    if len(record) != 1:
        raise DataError("Rows of several columns need one called text.", "DATA_COLUMNS")
    return next(iter(record.values()))


async def _tokenizer(request: Request, wanted: str | None) -> tuple[Model, Any]:
    """The tokenizer of a model; of the newest language model, if the request names none, because lm-eval names none."""
    studio = studio_of(request)
    model = await studio.model(wanted, "pretrain")
    loaded = await studio.answers(request, model, "load", lambda _: [studio.models.encoder(model)], [None])
    return model, loaded[0].saved


@router.post("/tokenize")
async def tokenize(request: Request, asked: TokenizeRequest) -> Tokenized:
    """The ids of a prompt; with special tokens, as the model reads it: a causal one has no end token."""
    _, saved = await _tokenizer(request, asked.model)
    ids = saved.tokenizer.encode([asked.prompt], asked.add_special_tokens, end=not saved.config.causal)[0].tolist()
    pieces = [saved.tokenizer.piece(i) for i in ids]
    return {"count": len(ids), "max_model_len": saved.model.base.max_len, "tokens": ids, "token_strs": pieces}


@router.post("/detokenize")
async def detokenize(request: Request, asked: DetokenizeRequest) -> Detokenized:
    """The text of ids."""
    _, saved = await _tokenizer(request, asked.model)
    if any(i > saved.tokenizer.largest for i in asked.tokens):
        raise DataError(f"A token id is not among 0 to {saved.tokenizer.largest}.", "DATA_TOKENS")
    return {"prompt": saved.tokenizer.decode(asked.tokens)}


@router.get("/tokenizer_info")
async def tokenizer_info(request: Request, model: str | None = None) -> TokenizerInfo:
    """The special tokens of a model, and how long its texts may be."""
    found, saved = await _tokenizer(request, model)
    t = saved.tokenizer
    return {
        "model": found.id, "vocab_size": t.size, "bos_token": t.piece(t.start), "eos_token": t.piece(t.end),
        "pad_token": t.piece(t.pad), "bos_token_id": t.start, "eos_token_id": t.end, "pad_token_id": t.pad,
        "tokenizer_sha256": t.sha256, "model_max_length": saved.model.base.max_len,
    }  # fmt: skip
