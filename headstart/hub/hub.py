"""Data sets and models of the Hugging Face hub by name, through Hugging Face's own libraries."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from headstart.errors import DataError, NetworkError, ResourceError, UserError, first_line
from headstart.hub.cache import FULL, cache_folder, writing_in

_NAME = re.compile(r"hf:((?:\w[\w.-]*/)?\w[\w.-]*)(?::([\w.-]*))?(?::([\w.-]+))?")


def get_dataset(name: str) -> Path:
    """The rows of `hf:NAME[:CONFIG[:SPLIT]]`, kept in the cache, fetched the first time; SPLIT is train if not given."""
    parts = _NAME.fullmatch(name)
    if not parts:
        raise DataError(f"'{name}' is not hf:NAME, hf:NAME:CONFIG or hf:NAME:CONFIG:SPLIT.", "DATA_PACK")
    repository, config, split = parts[1], parts[2] or None, parts[3] or "train"
    path = cache_folder() / "hub" / f"{repository.replace('/', '--')}-{config or 'default'}-{split}.parquet"
    if path.exists():
        return path
    try:
        from datasets import exceptions, load_dataset
    except ImportError:
        raise UserError(
            f"{name} needs the library datasets: pip install 'headstart[datasets]'.", "NOT_INSTALLED"
        ) from None
    try:
        rows = load_dataset(repository, config, split=split)
    except OSError as error:  # no network, no such data set, or one that needs a token
        if error.errno in FULL:
            raise ResourceError(f"{name} could not be kept ({error.strerror}). Free some space.", "DISK_FULL") from None
        raise NetworkError(f"{name} could not be downloaded: {first_line(error)}") from None
    except (ValueError, exceptions.DatasetsError) as error:  # no such config or split, or files it cannot read
        raise DataError(f"{name}: {first_line(error)}", "DATA_PACK") from None
    with writing_in("hub") as folder, tempfile.TemporaryDirectory(dir=folder) as draft:
        rows.to_parquet(f"{draft}/{path.name}")
        os.replace(f"{draft}/{path.name}", path)  # atomic: a reader sees all of it or none
    return path


def get_model(name: str, allow_pickle: bool = False) -> Path:
    """The folder with the model `hf:NAME`, fetched the first time: its settings, weights and tokenizer, and no code."""
    parts = re.fullmatch(r"hf:((?:\w[\w.-]*/)?\w[\w.-]*)", name)
    if not parts:
        raise UserError(f"'{name}' is not hf:NAME or hf:OWNER/NAME.")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise UserError(
            f"{name} needs the library transformers: pip install 'headstart[hf]'.", "NOT_INSTALLED"
        ) from None
    wanted = [
        "config.json",
        "*.safetensors",
        "*.safetensors.index.json",
        "tokenizer.json",
        "*processor_config.json",
    ]
    wanted += ["pytorch_model*.bin", "pytorch_model.bin.index.json"] if allow_pickle else []
    try:
        return Path(snapshot_download(parts[1], allow_patterns=wanted, etag_timeout=10))
    except Exception as error:  # whatever it and the network beneath it raise
        if isinstance(error, OSError) and error.errno in FULL:
            raise ResourceError(f"{name} could not be kept ({error.strerror}). Free some space.", "DISK_FULL") from None
        raise NetworkError(
            f"{name} could not be downloaded: {first_line(error)} A model that needs permission needs HF_TOKEN; a "
            "folder with config.json, model.safetensors and tokenizer.json works without a network."
        ) from None
