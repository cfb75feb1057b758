"""A line of 64 MB, and a text of 12 MB to tokenize, within the memory that a small machine has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SENTENCE = "The cat sat on the mat; and so it goes. "
LIMITED = """
import resource, sys
import headstart.text.read as read, headstart.text.tokenizer as tokenizer
from headstart.config import TokenizerConfig
learned = tokenizer.tokenizer_for([{sentence!r} * 100], TokenizerConfig(kind="char"))
learned.encode([{sentence!r} * 10_000])  # its threads, and what they keep
now = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (now + {room}, now + {room}))
texts = read.read_corpus([sys.argv[1]], sys.argv[2])
assert sum(map(len, texts)) > 0.9 * {size}
if {encode}:
    assert len(learned.encode(texts).ids) >= {size}
"""


def limited(path: Path, unit: str, room: int, encode: bool) -> subprocess.CompletedProcess[str]:
    code = LIMITED.format(sentence=SENTENCE, room=room, size=path.stat().st_size, encode=encode)
    return subprocess.run([sys.executable, "-c", code, str(path), unit], capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["document", "line", "sentence"])
def test_a_line_of_64_mb_is_read_within_512_mb(unit, tmp_path):
    (tmp_path / "a.txt").write_text(SENTENCE * (64_000_000 // len(SENTENCE)))
    done = limited(tmp_path / "a.txt", unit, 512 << 20, encode=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_text_of_12_mb_is_tokenized_within_512_mb(tmp_path):
    (tmp_path / "a.txt").write_text(SENTENCE * (12_000_000 // len(SENTENCE)))
    done = limited(tmp_path / "a.txt", "document", 512 << 20, encode=True)
    assert done.returncode == 0, done.stderr
