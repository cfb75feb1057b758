"""The labs: those that come with Headstart, a quick run of one as a job, and the reports in the folder."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Request
from fastapi import Path as InPath
from starlette.responses import HTMLResponse, Response

from headstart.errors import ConfigError, ModelError
from headstart.serve.pages import REPORT, page, report_bytes
from headstart.serve.registry import ID
from headstart.serve.studio import Studio, studio_of

if TYPE_CHECKING:
    from headstart.labs.folder import Summary
    from headstart.labs.lab import Lab

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class Known:
    """A lab that comes with Headstart, and what stands in the folder of it."""

    lab: Lab
    id: str  # of its quick run
    state: str  # that of the job of the quick run: "" where there is none
    missing: list[str]  # packs that a quick run needs and that are not in the cache

    @property
    def runs(self) -> bool:
        return bool(self.lab.steps(True, False))


@router.get("/labs")
def labs(request: Request) -> HTMLResponse:
    """The labs, each with its quick run, and the reports in the folder."""
    studio = studio_of(request)
    states = {job["id"]: job["state"] for job in studio.jobs.all()}
    known = {}
    for name, lab in _all_labs().items():
        wanted = studio.registry.id_of(quick_place(name, studio.registry.folder))
        known[name] = Known(lab, wanted, states.get(wanted, ""), missing_packs(lab))
    return page(request, "labs.html.j2", title="Labs", labs=known, ran=_reports(studio))


@router.get("/labs/{lab}/report")
def lab_report(request: Request, lab: Annotated[str, InPath(pattern=ID)]) -> Response:
    """The report as `headstart lab` wrote it."""
    found = next((path for name, path, _ in _reports(studio_of(request)) if name == lab), None)
    if found is None:
        raise ModelError("There is no lab of this id with a report.", "RUN_MISSING")
    return HTMLResponse(report_bytes(found / "report.html"), headers={"content-security-policy": REPORT})


def quick_place(name: str, folder: Path) -> Path:
    """Where the quick run of a lab writes; in a folder called runs, where `headstart lab NAME --quick` does."""
    return folder / "labs" / f"{name}-quick"


def lab_command(name: str, folder: Path) -> tuple[list[str], Path]:
    """The words after `headstart` of the quick run of a lab that comes with Headstart, and its folder."""
    lab, out = _all_labs().get(name), quick_place(name, folder)
    if lab is None:
        raise ConfigError(f"There is no lab '{name}'. GET /labs has them.", "LAB_MISSING")
    if not lab.steps(True, False):
        raise ConfigError(f"The lab {name} is an assignment: headstart lab start {name}.", "LAB_NO_STEPS")
    if missing := missing_packs(lab):
        raise ConfigError(f"The lab {name} needs packs that are not here, and nothing is downloaded from here: headstart data get {missing[0]}.")  # fmt: skip
    return ["lab", "run", name, "--quick", f"--out={out}"], out


def missing_packs(lab: Lab) -> list[str]:
    """The packs in the commands of a quick run that would be downloaded."""
    from headstart.hub.pack_contents import PACKS
    from headstart.hub.packs import pack_folder

    words = {part for command in lab.commands("", "", quick=True).values() for word in command for part in word.replace("=", ",").split(",")}  # fmt: skip
    return [name for name in PACKS if name in words and not pack_folder(name).exists()]


@cache
def _all_labs() -> dict[str, Lab]:
    from headstart.labs.lab import lab_files, open_lab

    return {name: open_lab(name)[1] for name in lab_files()}


def _reports(studio: Studio) -> list[tuple[str, Path, Summary]]:
    """The finished labs in the folder, and in its folder labs, where `headstart lab` writes: id, place and results."""
    from headstart.labs.folder import read_results

    found, folder = [], studio.registry.folder
    for file in sorted([*folder.glob("*/lab.json"), *folder.glob("labs/*/lab.json")]):
        path = file.parent
        if (path / "report.html").is_file() and path.resolve().is_relative_to(folder.resolve()):
            with suppress(ModelError):  # damaged; `headstart lab` tells why
                found.append((studio.registry.id_of(path), path, read_results(path)))
    return found
