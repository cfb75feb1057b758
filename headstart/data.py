"""The settings of data: which files, how they are read, which rows are held out. No torch here."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headstart.schema import Frozen
from headstart.task import Task

Unit = Literal["line", "sentence", "document"]


class ReadConfig(Frozen):
    """How the bytes of a text file become text."""

    encoding: str = "utf-8"  # a byte-order mark wins over it
    on_bad_bytes: Literal["fail", "replace"] = "fail"  # replace: by U+FFFD, and counted
    strip_nul: bool = False  # NUL characters are removed and counted, not rejected
    max_line_bytes: int = Field(0, ge=0)  # a longer line is rejected before it is in memory; 0: any length


class CorpusConfig(ReadConfig):
    """Unlabelled text to pretrain on."""

    paths: tuple[str, ...]
    unit: Unit = "document"  # what one text is; documents are packed into blocks, the others are padded
    valid_fraction: float = Field(0.1, ge=0, lt=1)  # held out, but no more than valid_most
    valid_most: int = Field(500_000, ge=1)  # characters, about: more would slow down every evaluation for nothing
    boundaries: bool = True  # wrap each text in the start and end tokens
    text_column: str | None = None  # for CSV and TSV
    stream_above: int = Field(32_000_000, ge=0)  # bytes of files; more are never in memory as a whole


class LabelledConfig(ReadConfig):
    """Labelled text to fine-tune on."""

    train: str
    valid: str | None = None  # split off from train when not given
    test: str | None = None
    text_column: str | None = None
    label_column: str | None = None
    skip_blank: bool = False  # rows without a text or a label are skipped and counted, not rejected
    clean_labels: bool = False  # labels that differ only by white space or case are merged and counted
    any_labels: bool = False  # labels that look like numbers, ids or lists are accepted as classes, not rejected
    # What is predicted for a row; auto: found in the rows.
    task: Literal["auto", Task] = "auto"
    label_separator: str | None = Field(None, min_length=1)  # of several labels in one cell; None: found
    valid_fraction: float = Field(0.2, gt=0, lt=1)  # of what is not test
    test_fraction: float = Field(0.2, ge=0, lt=1)
    split_seed: int = 0
    labels: int = Field(0, ge=0)  # number of training rows, validation rows included; 0 = all
    draw: int = 0  # seed of that sample; the sample of more labels contains that of fewer
    balanced: bool = False  # the sample has equally many rows of each class, not the shares that the classes have


class PairsConfig(ReadConfig):
    """Texts and their translations. Each split is one table of pairs, or two files aligned by line."""

    pairs: tuple[str, ...] = Field(min_length=1, max_length=2)
    valid: tuple[str, ...] = Field((), max_length=2)  # split off from pairs when not given
    test: tuple[str, ...] = Field((), max_length=2)
    source_column: str | None = None
    target_column: str | None = None
    valid_fraction: float = Field(0.1, gt=0, lt=1)  # of what is not test
    test_fraction: float = Field(0.1, ge=0, lt=1)
    split_seed: int = 0
    hold_out: tuple[str, ...] = ()  # sources that are never training rows


class CaptionsConfig(ReadConfig):
    """Images and their captions."""

    pairs: str  # a table with an image file and a caption in each row; or a folder with pairs.csv and images/
    images: str | None = None  # the folder of the files; None: images/ beside the table, or the folder of the table
    file_column: str | None = None
    caption_column: str | None = None
    group_column: str | None = None  # images of one group stay in the same split
    valid_fraction: float = Field(0.1, gt=0, lt=1)  # of the images that are not test
    test_fraction: float = Field(0.1, ge=0, lt=1)
    split_seed: int = 0
    strict: bool = False  # refuse to start when an image cannot be used, instead of skipping it
