"""Headstart measures whether pretraining helps on your text, and gives you the model.

The names below load what they need when they are first used: `import headstart` itself loads no torch.

    pretrain, finetune, train_translator, train_matcher   one job each: settings in, a run directory out
    LoadedLanguageModel, LoadedClassifier, LoadedEncoder, LoadedTranslator   a finished run put to work
    TextSearch, ImageSearch                               texts or images by a query
    Inspector, inspect                                    what can be seen inside a model
    LanguageModel, TextClassifier                         the first two jobs as scikit-learn estimators
    TextRegressor, MultiLabelClassifier, TokenTagger      the same for numbers, several labels per text and tags of words
    compare, Study                                        many runs, compared

Names of earlier releases still work, with a FutureWarning: `translate` is train_translator, `match` is train_matcher,
`Classifier` is LoadedClassifier and `Translations` is LoadedTranslator.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

__version__ = "0.2.0"

_HOMES = {
    "ImageSearch": "headstart.use.search:ImageSearch",
    "Inspector": "headstart.use.inspect:Inspector",
    "LanguageModel": "headstart.use.estimator:LanguageModel",
    "LoadedClassifier": "headstart.use.predict:LoadedClassifier",
    "LoadedEncoder": "headstart.use.encode:LoadedEncoder",
    "LoadedLanguageModel": "headstart.use.language:LoadedLanguageModel",
    "LoadedTranslator": "headstart.use.translate:LoadedTranslator",
    "Study": "headstart.study.study:Study",
    "MultiLabelClassifier": "headstart.use.task_estimators:MultiLabelClassifier",
    "TextClassifier": "headstart.use.estimator:TextClassifier",
    "TextRegressor": "headstart.use.task_estimators:TextRegressor",
    "TextSearch": "headstart.use.text_search:TextSearch",
    "TokenTagger": "headstart.use.token_tagger:TokenTagger",
    "compare": "headstart.study.study:compare",
    "finetune": "headstart.jobs.finetune:finetune",
    "inspect": "headstart.use.inspect:inspect",
    "pretrain": "headstart.jobs.pretrain:pretrain",
    "train_matcher": "headstart.jobs.match:match",
    "train_translator": "headstart.jobs.translate:translate",
}
_BEFORE = {  # names of earlier releases, which go with 0.4
    "Classifier": "LoadedClassifier",
    "Translations": "LoadedTranslator",
    "match": "train_matcher",
    "translate": "train_translator",
}
__all__ = [
    "ImageSearch",
    "Inspector",
    "LanguageModel",
    "LoadedClassifier",
    "LoadedEncoder",
    "LoadedLanguageModel",
    "LoadedTranslator",
    "MultiLabelClassifier",
    "Study",
    "TextClassifier",
    "TextRegressor",
    "TextSearch",
    "TokenTagger",
    "compare",
    "finetune",
    "inspect",
    "pretrain",
    "train_matcher",
    "train_translator",
]


def __getattr__(name: str) -> Any:
    now = _BEFORE.get(name, name)
    home = _HOMES.get(now)
    if home is None:
        raise AttributeError(f"module 'headstart' has no attribute '{name}'")
    if now != name:
        told = f"headstart.{name} is now headstart.{now}; the old name will be removed in version 0.4."
        warnings.warn(told, FutureWarning, stacklevel=2)
    module, _, attribute = home.partition(":")
    return getattr(import_module(module), attribute)
