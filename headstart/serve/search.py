"""Search over HTTP, of texts by a query and of images by a caption; no other server has a convention for it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from headstart.serve.answers import FoundImages, FoundTexts
from headstart.serve.requests import SearchRequest
from headstart.serve.studio import studio_of

router = APIRouter(tags=["search"])


@router.post("/search")
async def search(request: Request, asked: SearchRequest) -> FoundTexts | FoundImages:
    """The nearest of `texts`, as `headstart search` reports them; without texts, the nearest images of those that a matcher was trained with."""
    studio = studio_of(request)
    model = await studio.model(asked.model, *(("pretrain", "finetune") if asked.texts else ("match",)))

    def texts(several: list[SearchRequest]) -> list[Any]:
        from headstart.use.text_search import TextSearch

        encoder = studio.models.encoder(model)
        return [TextSearch.within(one.texts, encoder, model.id).find([one.query], one.top)[0].data() for one in several]

    def images(several: list[SearchRequest]) -> list[Any]:
        found = studio.models.image_search(model)
        sheets = [found.find([one.query], one.top, thumbnails=True)[0] for one in several]
        return [{**s.data(), "found": [{**f.data(), "thumbnail": f.source} for f in s.found]} for s in sheets]

    return (await studio.answers(request, model, "search", texts if asked.texts else images, [asked]))[0]
