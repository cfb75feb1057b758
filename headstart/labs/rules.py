"""What a step of a lab may do, since a lab may come from a stranger: its verbs, their flags, and which files. No torch.

A step reads below the folder of the lab's file, below --data and below the lab's output folder, and may name a pack.
It writes below the output folder. What is not listed here is refused: a flag or a setting that is new stays out of
labs until somebody has thought about it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from headstart.errors import ConfigError, did_you_mean, shortened
from headstart.schema import with_override

Kind = Literal["read", "write", "text"]  # a file, folder, run or pack; a file or folder to make; anything else
Words = tuple[tuple[Kind, str, str], ...]  # of each word that is a value: its kind, its flag ("" without), itself

MOST_JOBS = 16  # processes of one step
OWN = ("lab.json", "steps", "results.json", "report.html", "sheet.html", ".lock")  # what the lab itself writes
DECODING = "--encoding --on-bad-bytes --max-line-bytes"
COLUMNS = f"--text-column --label-column {DECODING}"
MACHINE = "--seed --device --threads --processes"
SHAPE = "--size --context --vocab --unit --steps --objective --start"
IMAGE_COLUMNS = f"--file-column --caption-column --group-column {DECODING}"
PAIR_COLUMNS = f"--source-column --target-column {DECODING}"


@dataclass(frozen=True)
class Verb:
    """What is allowed of a verb; a verb that can have --out must have it."""

    arguments: tuple[Kind, ...] = ()  # in order; the last one may come again
    read: str = ""  # flags whose value is a file, folder, run or pack
    write: str = ""
    text: str = ""
    switch: str = ""  # flags without a value


VERBS: Mapping[str, Verb] = {
    "pretrain": Verb(
        ("read",),
        read="--base --teacher --vectors --tokenizer",
        write="--out",
        text=f"{SHAPE} --preset --minutes --batch-size --lr --sample --text-column {DECODING} {MACHINE} --set",
        switch="--strip-nul --quiet",
    ),
    "finetune": Verb(
        ("read",),
        read="--base --valid --test --tokenizer",
        write="--out",
        text=f"--init --objective --train --pool --prompt --label-words --long --epochs --labels --size --context --vocab --batch-size --lr {COLUMNS} {MACHINE} --set",
        switch="--class-weights --balanced --strict-leakage --strip-nul --quiet",
    ),
    "which": Verb(
        ("read",), read="--base --valid --test", write="--plot", text=f"--minutes --labels {COLUMNS}", switch="--strip-nul --quiet"
    ),
    "audit": Verb(
        ("read",), read="--base --test --apply", write="--out", text=COLUMNS, switch="--overwrite --strip-nul --quiet"
    ),
    "label start": Verb(
        ("read",), read="--base", write="--out", text=f"--labels --seed {COLUMNS}", switch="--strip-nul --quiet"
    ),
    "label next": Verb(("read",), text="--count"),
    "label add": Verb(("write", "text", "text"), text="--by", switch="--skip --undo"),
    "label status": Verb(("read",)),
    "label export": Verb(("read",), write="--out --test", switch="--overwrite"),
    "compare": Verb(
        ("read",),
        read="--base --corpus --teacher --vectors --valid --test",
        write="--out",
        text=f"--arms --seeds --labels --prompt --label-words {SHAPE} --epochs --rates --pool --batch-size --jobs {COLUMNS} --set",
        switch="--balanced --strict-leakage --strip-nul --yes --quiet",
    ),
    "generate": Verb(
        ("read", "text"), write="--plot", text="--tokens --temperature --top-k --top-p --seed --top"
    ),
    "predict": Verb(("read", "text"), read="--file --also", text=f"--text-column --abstain-below --coverage {DECODING}", switch="--strip-nul --quiet"),
    "embed": Verb(
        ("read",), read="--file", write="--out", text=f"--normalize --text-column {DECODING}", switch="--overwrite --strip-nul --quiet"
    ),
    "cluster": Verb(
        ("read",), read="--file", write="--out", text=f"--clusters --seed --text-column {DECODING}", switch="--overwrite --strip-nul --quiet"
    ),
    "evaluate": Verb(("read",), text=f"--unit {COLUMNS}", switch="--strip-nul"),
    "inspect": Verb(
        ("read", "text"),
        read="--data --before",
        write="--html --png --svg",
        text=f"--rows {COLUMNS} --show --top --temperature --tokens --seed --layer --head --label",
        switch="--strip-nul --sample",
    ),
    "params": Verb(
        ("read",), write="--html --png --svg", text="--vocab --head --labels --hidden --size --context --set", switch="--tree"
    ),
    "search": Verb(
        ("read", "text"),
        read="--model --file",
        write="--png --html",
        text=f"--top --target --text-column {DECODING}",
        switch="--strict --strip-nul --quiet",
    ),
    "export": Verb(("read",), read="--int8", write="--out", text="--to --text-column --label-column"),
    "runs": Verb(("read",)),
    "verify": Verb(("read",), text="--cell --seed", switch="--no-rerun --quiet"),
    "report": Verb(("write",)),  # its page goes into the folder of the study
    "data check": Verb(
        ("read",), read="--tokenizer", write="--plot", text=f"--unit --context {COLUMNS}", switch="--strip-nul"
    ),
    "data table": Verb(("read",), write="--out", text=f"--first --draw {COLUMNS}", switch="--pieces --strip-nul"),
    "data list": Verb(),
    "data get": Verb(("read",)),
    "match train": Verb(
        ("read",),
        read="--images --text --image",
        write="--out",
        text=f"--train --pool --epochs --batch-size --lr {IMAGE_COLUMNS} {MACHINE} --set",
        switch="--strict --strip-nul --quiet",
    ),
    "match compare": Verb(
        ("read",),
        read="--images --text --image",
        write="--out",
        text="--train --splits --epochs --batch-size --lr --device --threads --jobs --set",
        switch="--quiet",
    ),
    "match evaluate": Verb(
        ("read",),
        read="--images",
        text=f"--file-column --caption-column {DECODING}",
        switch="--strict --strip-nul --quiet",
    ),
    "match classify": Verb(("read",), text="--labels --template", switch="--strict --quiet"),
    "translate train": Verb(
        ("read",),
        read="--valid --test",
        write="--out",
        text="--model --hidden --level --target-level --epochs --batch-size --lr --context --split --sample --hold-out --beam "
        f"{PAIR_COLUMNS} {MACHINE} --set",
        switch="--strip-nul --quiet",
    ),
    "translate apply": Verb(
        ("read", "text"), read="--file", write="--attention", text="--split --beam --n-best --length-penalty"
    ),
    "translate evaluate": Verb(
        ("read",), text=f"--split --beam --length-penalty {PAIR_COLUMNS}", switch="--strip-nul"
    ),
    "translate grid": Verb(
        ("read",), write="--out", text="--model --hidden --seeds --epochs --threads --jobs --set", switch="--quiet"
    ),
}  # fmt: skip
WORD_SETTINGS = {  # of --set: those that hold words which are no names of files
    "activation", "arms", "caption_column", "cell", "device", "encoding", "file_column", "gradients", "group_column", "head_labels", "hold_out", "init",
    "label_column", "label_separator", "label_words", "long", "models", "norm", "objective", "objectives", "on_bad_bytes", "pool", "positions", "predictions",
    "precision", "preset", "projection", "prompt", "prompts", "samples", "scope", "score", "size", "source_column", "split", "start", "target_column", "task", "text_column", "unit",
}  # fmt: skip


def check_command(words: list[str]) -> Words:
    """The values among the words of a command; a ValueError where a lab may not use one of its verbs or flags."""
    name = next((name for name in (" ".join(words[:2]), " ".join(words[:1])) if name in VERBS), None)
    if name is None:
        asked = shortened(" ".join(words[:1]))
        raise ValueError(f"a lab has no step {asked}.{did_you_mean(asked, VERBS)} It may use: {', '.join(VERBS)}")
    verb = VERBS[name]
    kinds: dict[str, Kind] = {flag: kind for kind in ("read", "write", "text") for flag in getattr(verb, kind).split()}
    left, found, arguments = iter(words[len(name.split()) :]), [], list(verb.arguments)
    for word in left:
        flag, equals, value = word.partition("=")
        if not word.startswith("-"):
            if not arguments:
                raise ValueError(f"{name} takes no further argument, such as {shortened(word)}")
            found.append((arguments.pop(0) if len(arguments) > 1 else arguments[0], "", word))
        elif flag in kinds:
            value = value if equals else next(left, "")
            found.append((kinds[flag], flag, value))
            _check_value(flag, value)
        elif word not in verb.switch.split():
            raise ValueError(f"a lab may not use {shortened(flag)} with {name}.{did_you_mean(flag, kinds)}")
    if "--out" in kinds and not any(flag == "--out" for _, flag, _ in found):
        raise ValueError(f"{name} in a lab needs --out, below {{out}}")
    return tuple(found)


def _check_value(flag: str, value: str) -> None:
    several = flag in ("--jobs", "--processes")
    if several and not (value.isascii() and value.isdigit() and len(value) < 4 and int(value) <= MOST_JOBS):
        raise ValueError(f"a lab may use {flag} up to {MOST_JOBS}, not {shortened(value)}")
    if flag == "--set":
        try:
            _check_settings(with_override({}, value))
        except ConfigError as error:
            raise ValueError(str(error).rstrip(".")) from None


def _check_settings(settings: Mapping[str, Any], name: str = "") -> None:
    """Numbers, true, false, and the words of settings that name no file."""
    for key, value in settings.items():
        whole = f"{name}{key}"
        if isinstance(value, Mapping):
            _check_settings(value, f"{whole}.")
        elif key == "allow_pickle" or (key not in WORD_SETTINGS and any(map(_has_words, _parts(value)))):
            raise ValueError(f"a lab may not set {shortened(whole)} to {shortened(str(value))}")


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for each in value:
            yield from _parts(each)
    else:
        yield value


def _has_words(value: Any) -> bool:
    return not isinstance(value, (bool, int, float))


@dataclass(frozen=True)
class Folders:
    """Where a lab may read and write."""

    home: Path  # of the lab's file; also where its commands run
    out: Path
    data: Path | None = None

    def check(self, step: str, values: Words) -> None:
        """Refuse a step that reads or writes anywhere else, also through a link."""
        for kind, flag, value in values:
            if kind != "text" and (why := self._outside(value, kind)):
                what = f"{flag} {value}".strip()
                raise ConfigError(f"Step '{step}' of this lab {why}: {shortened(what)}.", "LAB_REFUSED")

    def _outside(self, value: str, kind: Kind) -> str:
        if value.startswith("hf:"):
            return "asks for something from the hub, which a lab may not; fetch it yourself and give it with --data"
        named = Path(value)
        if ".." in named.parts or value.startswith("~"):
            return "names a file by '..' or '~', which a lab may not"
        try:
            path, out = (self.home / named).resolve(), self.out.resolve()
            if kind == "write":
                inside = path != out and path.is_relative_to(out) and path.relative_to(out).parts[0] not in OWN
                return "" if inside else "writes to a place that is not its own (a lab writes below {out})"
            roots = [root.resolve() for root in (self.home, self.out, self.data) if root]
            if not all(any(each.is_relative_to(root) for root in roots) for each in (path, *_links(path))):
                return "reads outside its own folder and that of --data"
        except (OSError, RuntimeError, ValueError):  # a loop of links, or a name that no file can have
            return "names a file that cannot be found"
        return ""


def _links(folder: Path) -> Iterator[Path]:
    """Where the links inside a folder lead to."""
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            if os.path.islink(os.path.join(place, name)):
                yield Path(place, name).resolve()
