"""Texts inside a prompt, as rows of tokens.

Template and text become tokens separately and are joined: what is cut from a long text is never part of the template, and an
exported tokenizer can do the same. A space in front of the text or the label word belongs to its tokens, as in running text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headstart.errors import ConfigError
from headstart.prompts import Prompt
from headstart.text.batch import blocks
from headstart.text.tokenizer import Tokenizer, TokenRows

LEAST_ROOM = 4  # tokens of a text that a prompt must leave


@dataclass(frozen=True)
class PromptTokens:
    """A template as tokens."""

    before: tuple[int, ...]  # the start token first
    space: str  # in front of the text
    after: tuple[int, ...]  # behind the text; of a masked model with its mask token and all that follows
    tail: int  # tokens after the position at which the label word is predicted

    @property
    def size(self) -> int:
        return len(self.before) + len(self.after)


def prompt_tokens(prompt: Prompt, tokenizer: Tokenizer, causal: bool) -> PromptTokens:
    """The tokens of a template, for a causal model or a masked one."""
    before, between, tail = prompt.parts
    first = (tokenizer.start, *_ids(tokenizer, before.rstrip(" ")))
    space = " " if before.endswith(" ") else ""
    read = _ids(tokenizer, between.rstrip(" "))
    if causal:
        return PromptTokens(first, space, read, 0)
    if tokenizer.mask is None:
        raise ConfigError("A prompt needs a causal model, or a masked one: this tokenizer has no mask token.")
    rest = (*_ids(tokenizer, tail), tokenizer.end)
    return PromptTokens(first, space, (*read, tokenizer.mask, *rest), len(rest))


def word_tokens(prompt: Prompt, tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    """The tokens of each label word where it stands in the template, in the order of the words."""
    space = " " if prompt.parts[1].endswith(" ") else ""
    found = [_ids(tokenizer, space + word.strip()) for word in prompt.words.values()]
    if unknown := [w for w, ids in zip(prompt.words.values(), found, strict=True) if not ids or tokenizer.unk in ids]:
        raise ConfigError(
            f"The base's vocabulary does not have the label word '{unknown[0]}'. Give another: --label-words."
        )
    return found


def prompted_rows(
    texts: Sequence[str], tokenizer: Tokenizer, tokens: PromptTokens, context: int, long: Literal["truncate", "window"]
) -> tuple[TokenRows, NDArray[np.int64], int]:
    """Texts inside the prompt: rows, the text that each row is part of, and how many texts had to be cut."""
    room = context - tokens.size
    if room < LEAST_ROOM:
        raise ConfigError(f"The prompt takes {tokens.size} of the {context} tokens that the base reads. Shorten it.")
    bare = tokenizer.encode([tokens.space + text.strip() for text in texts], boundaries=False)
    inside = [bare[i] for i in range(len(bare))]
    cut = 0
    if long == "window":
        windows = [blocks(row, room, room // 4) for row in inside]
    else:
        cut, windows = sum(len(row) > room for row in inside), [[row[:room]] for row in inside]
    rows = TokenRows.of([*tokens.before, *window, *tokens.after] for own in windows for window in own)
    return rows, np.repeat(np.arange(len(texts)), [len(own) for own in windows]), cut


def _ids(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    return tuple(tokenizer.encode([text], boundaries=False)[0].tolist()) if text else ()
