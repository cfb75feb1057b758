"""The flags of `headstart label`; flags.py has the others."""

from __future__ import annotations

from headstart.cli.complete import runs
from headstart.cli.flag import Flag

START, NEXT, ADD, STATUS, EXPORT = ((f"label {name}",) for name in ("start", "next", "add", "status", "export"))
LABELLING_VERBS = (*START, *NEXT, *ADD, *STATUS, *EXPORT)

LABELLING = (
    Flag("FILE", "Texts to label: a table, or one per line; or a pack.", START, required=True),
    Flag("DIR", "The folder of a labelling session.", (*NEXT, *ADD, *STATUS, *EXPORT), required=True),
    Flag("ROW", "The number of the row, as headstart label next prints it.", ADD, kind=int, required=True),
    Flag("LABEL", "Its label.", ADD),
    Flag("--labels", "Names of the labels, with commas; with --label-column also those of the file.", START, commas=True),
    Flag("--base", "What makes vectors of the texts: tfidf, or a pretrained run or an external model; one with a language head also starts from its "
         "zero-shot answers. auto: minilm if it is in the cache, else tfidf.", START, default="auto", complete=runs),
    Flag("--text-column", "Column of the text. [default: found by its name]", START),
    Flag("--label-column", "Column of labels that some rows have already. [default: none]", START),
    Flag("--seed", "Seed of the random part.", START, kind=int, default=0, least=0),
    Flag("--out", "The folder to make.", START, default="runs/labelling"),
    Flag("--count", "Rows to print.", NEXT, kind=int, default=1, least=1, most=1000),
    Flag("--skip", "Put the row aside, without a label.", ADD, kind=bool),
    Flag("--undo", "Take back the last answer to the row.", ADD, kind=bool),
    Flag("--by", "Who answers; --undo takes back the answers of the same author.", ADD, default="cli"),
    Flag("--out", "The table to write: text and label.", EXPORT, default="labelled.csv"),
    Flag("--test", "Write the random part to this table, to be test rows, and only the others to --out. [default: none]", EXPORT),
    Flag("--overwrite", "Replace tables that are there.", EXPORT, kind=bool),
)  # fmt: skip
