"""The rows of the table of flags (flags.py) that belong to the verbs about labs."""

from __future__ import annotations

from pathlib import Path

from headstart.cli.flag import Flag

RUN = ("lab run",)
WORDS = ("start", "check", "grade", "new", "validate", "notebook")
START, CHECK, GRADE, NEW, VALIDATE, NOTEBOOK = ((f"lab {word}",) for word in WORDS)
VERBS = ("lab list", *RUN, "lab table", *START, *CHECK, *GRADE, *NEW, *VALIDATE, *NOTEBOOK)

ARGUMENTS = (
    Flag(
        "name", "A lab of `headstart lab list`, or a .toml file.", (*RUN, *START, *VALIDATE, *NOTEBOOK), required=True
    ),
    Flag("name", "Name of the new lab: lower-case letters, digits and hyphens.", NEW, required=True),
    Flag("DIR...", "Folders of labs that were run.", ("lab table",), kind=Path, many=True, required=True),
    Flag("DIR", "A student's folder, made by `lab start`.", CHECK, kind=Path, required=True),
    Flag("DIR...", "Students' folders, as they were handed in.", GRADE, kind=Path, many=True, required=True),
)
DATA = (
    Flag("--data", "Folder with the files that the lab names.", RUN, kind=Path),
    Flag("--quick", "A few minutes, on small public data: a trial run.", RUN, kind=bool),
    Flag("--student", "The student's id: the seed and the version of each question are derived from it.", (*START, *NOTEBOOK), default="student"),
    Flag("--key", "The teacher's key: which lab, right answers, hidden cases, marks given by hand.", GRADE, kind=Path, required=True),
    Flag("--key", "Check this key too, and print its answers as the salted hashes of a public lab file.", VALIDATE, kind=Path),
    Flag("--run", "A folder where the lab was run: every place of the lab is looked up in it. [default: runs/labs/NAME, if it is there]",
         VALIDATE, kind=Path),
    Flag("--key", "A key with answers and a solution: also write the notebook with solutions, and otter-grader's source of both.",
         NOTEBOOK, kind=Path),
)  # fmt: skip
OUTPUT = (
    Flag("--out", "The lab's folder; an interrupted lab continues there. [default: runs/labs/NAME]", RUN, kind=Path),
    Flag("--sheet", "Leave the answers blank: sheet.html instead of report.html.", RUN, kind=bool),
    Flag("--out", "The student's folder. [default: NAME-ID]", START, kind=Path),
    Flag("--out", "Folder for grades.csv.", GRADE, kind=Path, default=Path("grades")),
    Flag("--gradescope", "Also write STUDENT/results.json, in the form of Gradescope's autograder.", GRADE, kind=bool),
    Flag("--out", "Folder for the files of the lab. [default: this one]", NEW, kind=Path),
    Flag("--out", "Folder for the notebooks. [default: this one]", NOTEBOOK, kind=Path),
)
