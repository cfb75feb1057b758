"""Translations over HTTP; no other server has a convention for them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from headstart.errors import DataError
from headstart.serve.answers import Translated
from headstart.serve.requests import TranslateRequest
from headstart.serve.studio import studio_of

router = APIRouter(tags=["translation"])


@router.post("/translate")
async def translate(request: Request, asked: TranslateRequest) -> list[Translated]:
    """The translation of each text with its score, as `headstart translate apply` reports it."""
    texts = [asked.inputs] if isinstance(asked.inputs, str) else list(asked.inputs)
    if not all(text.strip() for text in texts):
        raise DataError("A text to translate is blank.", "DATA_BLANK")
    studio = studio_of(request)
    model = await studio.model(asked.model, "translate")

    def work(several: list[str]) -> list[Any]:
        return list(studio.models.translator(model).translate(several, beams=asked.beams, n_best=asked.beams))

    return await studio.answers(request, model, f"translate {asked.beams}", work, texts)
