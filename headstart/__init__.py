"""Headstart tells you whether pretraining helps on your text, and hands you the model.

The names below load what they need when they are first used: `import headstart` itself loads no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "Classifier": "headstart.use.predict",
    "ImageSearch": "headstart.use.search",
    "Inspector": "headstart.use.inspect",
    "LanguageModel": "headstart.use.estimator",
    "Study": "headstart.study.study",
    "TextClassifier": "headstart.use.estimator",
    "compare": "headstart.study.study",
    "Translations": "headstart.use.translate",
    "finetune": "headstart.jobs.finetune",
    "inspect": "headstart.use.inspect",
    "match": "headstart.jobs.match",
    "pretrain": "headstart.jobs.pretrain",
    "translate": "headstart.jobs.translate",
}
__all__ = [
    "Classifier",
    "ImageSearch",
    "Inspector",
    "LanguageModel",
    "Study",
    "TextClassifier",
    "Translations",
    "compare",
    "finetune",
    "inspect",
    "match",
    "pretrain",
    "translate",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'headstart' has no attribute '{name}'")
