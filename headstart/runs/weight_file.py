"""Files of weights (safetensors), read up to a limit: a small file can name more tensors than any model has."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from headstart.errors import ModelError
from headstart.regular_file import open_regular

MOST_HEADER = 8 * 2**20  # bytes; safetensors itself reads up to 100 MB
MOST_TENSORS = 3000  # in one file; models of a hundred layers have fewer than two thousand


def read_weights(file: Path) -> dict[str, Tensor]:
    """Every tensor of a file by name; a FileNotFoundError where there is none, a ModelError where it cannot be used."""
    try:
        with open_regular(file) as raw:
            header = int.from_bytes(raw.read(8), "little")
        if header > MOST_HEADER:
            raise ModelError(f"{file} is damaged (a header of {header:,} bytes; it has {MOST_HEADER:,} at most).")
        with safe_open(file, "pt") as opened:
            names = list(opened.keys())
            if len(names) > MOST_TENSORS:
                raise ModelError(f"{file}: {len(names):,} tensors, where a model has {MOST_TENSORS:,} at most.")
            if empty := next((name for name in names if 0 in opened.get_slice(name).get_shape()), None):
                raise ModelError(f"{file}: the tensor {empty} is empty.")
            return {name: opened.get_tensor(name) for name in names}
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ModelError(f"{file}: cannot be read ({error.strerror or error}).") from None
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ModelError(f"{file} is damaged ({error}).") from None
