"""OpenAI's completions and embeddings, for clients that speak them already.

With `echo`, there are as many tokens as the prompt and the new text have; the first has no log-probability, and
`text_offset` counts from the start of the prompt. `max_tokens` 0 scores the prompt alone.
"""

from __future__ import annotations

import base64
import secrets
import struct
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from headstart.errors import UserError
from headstart.serve.answers import Completion, CompletionChoice, Logprobs, ModelCard, ModelList, Usage
from headstart.serve.problems import BUG, scrubbed
from headstart.serve.registry import Model
from headstart.serve.requests import CompletionRequest, EmbeddingsRequest
from headstart.serve.studio import Studio, studio_of
from headstart.strict_json import to_json

if TYPE_CHECKING:
    from headstart.use.completion import ScoredToken
    from headstart.use.language import LoadedLanguageModel

router = APIRouter(prefix="/v1", tags=["OpenAI"])
Prompt = str | Sequence[int]


@router.get("/models")
def list_models(request: Request) -> ModelList:
    """The finished models of the folder."""
    return {"object": "list", "data": [_described(model) for model in studio_of(request).registry.models()]}


@router.get("/models/{model}")
def get_model(request: Request, model: str) -> ModelCard:
    """A model by its id, or by its name."""
    return _described(studio_of(request).registry.model(model))


def _described(model: Model) -> ModelCard:
    return {"id": model.id, "object": "model", "created": int(model.made), "owned_by": "headstart", "name": model.name, "kind": model.job}  # fmt: skip


@dataclass
class Choice:
    """One completion as it grows."""

    index: int
    prompt: Prompt
    ids: list[int]
    asked: CompletionRequest
    tokenizer: Any
    tokens: list[ScoredToken] = field(default_factory=list)  # those that the answer shows
    made: list[int] = field(default_factory=list)
    told: int = 0  # characters of the new text that have been sent
    shown: int = 0  # tokens that have been sent
    reason: str | None = None

    @property
    def stops(self) -> list[str]:
        given = self.asked.stop or []
        return [word for word in ([given] if isinstance(given, str) else given) if word]

    @property
    def new_text(self) -> str:
        """The text of the new tokens, up to the first stop word."""
        before = self.tokenizer.decode(self.ids)
        text = self.tokenizer.decode([*self.ids, *self.made])[len(before) :]
        found = [place for word in self.stops if (place := text.find(word)) >= 0]
        return text[: min(found)] if found else text

    def add(self, token: ScoredToken) -> bool:
        """Take a new token; False when the text is complete."""
        if token.id == self.tokenizer.end:
            self.reason = "stop"
            if self.asked.echo:  # who scores a prompt counts one token for each that was asked for
                self.tokens.append(token)
            return False
        self.made.append(token.id)
        self.tokens.append(token)
        if self.stops and any(word in self.tokenizer.decode([*self.ids, *self.made]) for word in self.stops):
            whole = self.tokenizer.decode([*self.ids, *self.made])[len(self.tokenizer.decode(self.ids)) :]
            if len(self.new_text) < len(whole):
                self.reason = "stop"
                return False
        return True

    @property
    def prompt_text(self) -> str:
        return self.prompt if isinstance(self.prompt, str) else self.tokenizer.decode(self.prompt)

    def logprobs(self, first: int = 0) -> Logprobs | None:
        if self.asked.logprobs is None:
            return None
        tokens = self.tokens[first:]
        start = 0 if self.asked.echo else len(self.ids)
        ids = [*self.ids, *self.made]
        begin = 0 if self.asked.echo else len(self.tokenizer.decode(self.ids))
        places = [len(self.tokenizer.decode(ids[: start + first + k])) for k in range(len(tokens))]
        shift = len(self.prompt_text) - begin if not self.asked.echo else 0
        return {
            "tokens": [t.token for t in tokens],
            "token_logprobs": [t.log_probability for t in tokens],
            "top_logprobs": [
                dict(t.top[: self.asked.logprobs]) if t.log_probability is not None else None for t in tokens
            ],
            "text_offset": [max(0, place + shift) for place in places],
        }

    def whole(self) -> CompletionChoice:
        text = (self.prompt_text if self.asked.echo else "") + self.new_text
        return {
            "index": self.index,
            "text": text,
            "logprobs": self.logprobs(),
            "finish_reason": self.reason or "length",
        }

    def part(self, last: bool) -> CompletionChoice | None:
        """What has come since the last part; a character is sent only when all of its bytes are there."""
        text = self.new_text
        if not last:
            text = text.rstrip("\ufffd")
            for word in self.stops:  # what may yet become a stop word waits
                text = text[: len(text) - max((k for k in range(1, len(word)) if text.endswith(word[:k])), default=0)]
        first = self.told == 0 and self.shown == 0 and bool(self.asked.echo)
        fresh = text[self.told :]
        if not fresh and not last and not first:
            return None
        self.told += len(fresh)
        logprobs, self.shown = self.logprobs(self.shown), len(self.tokens)
        return {
            "index": self.index,
            "text": (self.prompt_text if first else "") + fresh,
            "logprobs": logprobs,
            "finish_reason": (self.reason or "length") if last else None,
        }


def prompts_of(prompt: Any) -> list[Prompt]:
    if isinstance(prompt, str) or (prompt and isinstance(prompt[0], int)):
        return [prompt]
    return list(prompt)


@router.post("/completions", response_model=Completion)
async def completions(request: Request, asked: CompletionRequest) -> Any:
    """Continue a text, or score it."""
    studio = studio_of(request)
    model = await studio.model(asked.model, "pretrain")
    loaded = (await studio.answers(request, model, "load", lambda _: [studio.models.language_model(model)], [None]))[0]
    choices = await _begun(studio, request, model, loaded, asked)
    facts = {"id": f"cmpl-{secrets.token_hex(12)}", "object": "text_completion", "created": int(time.time()), "model": model.id}  # fmt: skip
    if asked.stream:
        return StreamingResponse(_streamed(studio, request, loaded, choices, facts), media_type="text/event-stream")
    for choice in choices:
        async for _ in _grown(studio, request, loaded, choice):
            pass
    return {**facts, "choices": [choice.whole() for choice in choices], "usage": _usage(choices)}


async def _begun(
    studio: Studio, request: Request, model: Model, loaded: LoadedLanguageModel, asked: CompletionRequest
) -> list[Choice]:
    """A choice for each prompt and each of `n`; with `echo`, the tokens of the prompt are scored."""
    from headstart.use.completion import ScoredToken, prompt_ids, prompt_scores

    room = asked.max_tokens if asked.max_tokens is not None else 16
    choices: list[Choice] = []
    for prompt in prompts_of(asked.prompt):
        ids = prompt_ids(loaded, prompt, room)
        tokens: list[ScoredToken] = []
        if asked.echo:

            def score(all_ids: list[list[int]]) -> list[list[ScoredToken]]:
                return [prompt_scores(loaded, row, asked.logprobs or 0) for row in all_ids]

            if asked.logprobs is None:
                tokens = [ScoredToken(i, "", None) for i in ids]
            else:
                tokens = (await studio.answers(request, model, f"score {asked.logprobs}", score, [ids]))[0]
        for _ in range(asked.n or 1):
            choices.append(Choice(len(choices), prompt, ids, asked, loaded.saved.tokenizer, list(tokens)))
    return choices


async def _grown(studio: Studio, request: Request, loaded: LoadedLanguageModel, choice: Choice) -> AsyncIterator[None]:
    """Let a choice grow to its end, token by token."""
    from headstart.models.decode import Sampling
    from headstart.use.completion import continuation

    asked = choice.asked
    room = asked.max_tokens if asked.max_tokens is not None else 16
    if not room:
        return
    seed = asked.seed if asked.seed is not None else secrets.randbits(31)
    temperature = 1.0 if asked.temperature is None else asked.temperature
    top_p = 1.0 if asked.top_p is None else asked.top_p
    how = Sampling(temperature, asked.top_k or 0, top_p, (seed + choice.index) % 2**63)
    async for token in studio.steps(
        request, lambda: continuation(loaded, choice.ids, room, how, asked.logprobs or 0)
    ):  # fmt: skip
        if not choice.add(token):
            return
        yield


async def _streamed(
    studio: Studio, request: Request, loaded: LoadedLanguageModel, choices: list[Choice], facts: dict[str, Any]
) -> AsyncIterator[str]:
    try:
        for choice in choices:
            async for _ in _grown(studio, request, loaded, choice):
                if part := choice.part(last=False):
                    yield f"data: {to_json({**facts, 'choices': [part]})}\n\n"
            yield f"data: {to_json({**facts, 'choices': [choice.part(last=True)]})}\n\n"
    except UserError as error:
        told = {"error": {"code": error.code, "message": scrubbed(str(error), studio.settings.folder)}}
        yield f"data: {to_json(told)}\n\n"
        return
    except Exception:
        yield f"data: {to_json({'error': {'code': 'BUG', 'message': BUG}})}\n\n"
        raise
    options = choices[0].asked.stream_options
    if options and options.include_usage:
        yield f"data: {to_json({**facts, 'choices': [], 'usage': _usage(choices)})}\n\n"
    yield "data: [DONE]\n\n"


def _usage(choices: Sequence[Choice]) -> Usage:
    prompt = sum(len(c.ids) for c in choices if c.index % (c.asked.n or 1) == 0)
    new = sum(len(c.made) for c in choices)
    return {"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new}


@router.post("/embeddings")
async def embeddings(request: Request, asked: EmbeddingsRequest) -> Response:
    """One vector for each text, of length 1."""
    studio = studio_of(request)
    model = await studio.model(asked.model, "pretrain", "finetune")
    texts = [asked.input] if isinstance(asked.input, str) else asked.input
    vectors = await studio.answers(
        request, model, "embed", lambda t: studio.models.encoder(model).embed(t), list(texts)
    )
    if asked.encoding_format == "base64":
        vectors = [base64.b64encode(struct.pack(f"<{len(v)}f", *v)).decode() for v in vectors]
    data = [{"object": "embedding", "index": i, "embedding": v} for i, v in enumerate(vectors)]
    words = sum(len(text.split()) for text in texts)
    body = {"object": "list", "data": data, "model": model.id, "usage": {"prompt_tokens": words, "total_tokens": words}}
    return Response(to_json(body), media_type="application/json")
