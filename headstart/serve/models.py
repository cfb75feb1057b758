"""Models that stay loaded: the least recently used go when their weights take more than the memory that is allowed."""

from __future__ import annotations

import gc
import os
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from headstart.serve.registry import Model

if TYPE_CHECKING:
    from headstart.show.view import Inspection
    from headstart.use.encode import LoadedEncoder
    from headstart.use.inspect import Inspector
    from headstart.use.language import LoadedLanguageModel
    from headstart.use.predict import LoadedClassifier
    from headstart.use.search import ImageSearch
    from headstart.use.translate import LoadedTranslator

T = TypeVar("T")
MANY = 8  # texts


@dataclass
class _Held:
    loaded: Any
    bytes: int


class Models:
    """Used by the threads that work with models, and asked for its size by others."""

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self._held: OrderedDict[tuple[str, str, float], _Held] = OrderedDict()
        self._lock, self._loading = threading.Lock(), threading.RLock()

    @property
    def bytes(self) -> int:
        with self._lock:
            return sum(held.bytes for held in self._held.values())

    @property
    def count(self) -> int:
        return len(self._held)

    def classifier(self, model: Model, texts: int = 1) -> LoadedClassifier:
        """To label so many texts in one pass."""
        from headstart.use.predict import LoadedClassifier

        return self._get(LoadedClassifier, model, texts)

    def language_model(self, model: Model) -> LoadedLanguageModel:
        from headstart.use.language import LoadedLanguageModel

        return self._get(LoadedLanguageModel, model)

    def encoder(self, model: Model) -> LoadedEncoder:
        from headstart.use.encode import LoadedEncoder

        return self._get(LoadedEncoder, model)

    def inspector(self, model: Model) -> Inspector:
        from headstart.use.inspect import Inspector

        return self._get(Inspector, model)

    def translator(self, model: Model) -> LoadedTranslator:
        from headstart.use.translate import LoadedTranslator

        return self._get(LoadedTranslator, model)

    def image_search(self, model: Model) -> ImageSearch:
        from headstart.use.search import ImageSearch

        return self._get(ImageSearch, model)

    def inspect(self, model: Model, text: str, tokens: int) -> Inspection:
        """What `headstart inspect` shows of a text."""
        if model.job == "translate":
            return self.translator(model).inspect(text)
        return self.inspector(model).inspect(text, tokens=tokens)

    def _get(self, kind: type[T], model: Model, texts: int = 1) -> T:
        _take_cores(texts)  # which every thread says for itself
        with self._loading:  # what two ask for is loaded once
            return self._found(kind, model)

    def _found(self, kind: type[T], model: Model) -> T:
        key = (kind.__name__, model.id, model.made)  # one that was trained anew is another
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                found: T = self._held[key].loaded
                return found
        loaded: T = kind.load(model.path)  # type: ignore[attr-defined]
        with self._lock:
            for old in [k for k in self._held if k[:2] == key[:2]]:
                del self._held[old]
            self._held[key] = _Held(loaded, _size(loaded))
            while sum(held.bytes for held in self._held.values()) > self.memory and len(self._held) > 1:
                self._held.popitem(last=False)
        _spare_the_collector()
        return loaded


def _take_cores(texts: int) -> None:
    """All cores for a pass of many texts, else half of them: with little to do, threads wait longer for each other than they work."""
    import torch

    cores = os.cpu_count() or 1
    torch.set_num_threads(cores if texts >= MANY else max(1, cores // 2))


def _spare_the_collector() -> None:
    """Collections of garbage pass over what is loaded; each took up to a tenth of a second otherwise, in the middle of requests."""
    gc.unfreeze()  # a model that was dropped may be held by a cycle
    gc.collect()
    gc.freeze()


def _size(loaded: Any) -> int:
    from headstart.runs.checkpoint import weight_bytes

    owner = next(
        (getattr(loaded, part) for part in ("saved", "translator", "matcher") if hasattr(loaded, part)), loaded
    )
    network = owner.model
    return weight_bytes(network)
