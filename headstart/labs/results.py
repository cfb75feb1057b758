"""What a lab measured: figures beside those of the reference, tables and answers, picked from the JSON of its steps. No torch.

What cannot be found is reported in its place, so that one missing number does not cost the page.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, TypedDict

from headstart.errors import ModelError, did_you_mean
from headstart.labs.effect import Effect, EffectResult, Place, measured
from headstart.labs.folder import Facts, FigureResult, StepResult, Summary, read_answer, read_facts, read_step
from headstart.labs.lab import Answer, Figure, Lab, Needed, Table
from headstart.quantities import duration
from headstart.runs.disk import write_file
from headstart.strict_json import to_json

Find = Callable[[Place], Any]
EXTREMES: dict[str, Callable[[Iterable[float]], float]] = {"max": max, "min": min}
_STEP = re.compile(r"([^.\[\]]+)|\[([^\]]*)\]")


class NotFound(Exception):
    """Nothing stands at a place; the message says which part of the path is missing, `hint` what may have been meant."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class TableResult(TypedDict):
    caption: str
    header: list[str]
    rows: list[list[Any]]
    missing: list[str]  # columns that were not found, and why


class AnswerResult(TypedDict):
    question: str
    text: str


class Score(TypedDict):
    """How many figures can be compared with the reference, and how they stand to it."""

    compared: int
    better: int
    equal: int
    alike: int
    worse: int


class Results(Summary):
    """results.json"""

    reference: str
    effects: list[EffectResult]
    rows: dict[str, str]  # the parts that have a figure here
    left_out: dict[str, str]  # the others, by --quick
    data: list[dict[str, Any]]  # [[data]] of the lab's file
    tables: list[TableResult]
    pictures: list[dict[str, str]]  # [[picture]] of the lab's file
    answers: list[AnswerResult]
    score: Score


def gather(name: str, lab: Lab, out: Path) -> Results:
    """results.json of a lab whose steps are done, also written."""
    facts = read_facts(out)
    run = lab.part(facts["quick"], bool(facts["data_dir"]))
    stands_in = [f"{n.what}: {said}" for n in lab.data if (said := _stand_in(n, facts))]
    steps = [_step(lab, out, facts, step.name, step.shows) for step in run.step]
    answers = {step.name: read_answer(out, step.name) for step in run.step}

    def find(place: Place) -> Any:
        step, _, path = place.partition(": ")
        return pick(answers[step], path)

    figures = [_figure(figure, find, facts["quick"] or bool(stands_in)) for figure in run.figure]
    effects = [_effect(effect, find) for effect in run.effect]
    sentences = [_verdict(find, place, len(run.verdict) > 1) for place in run.verdict]
    there = {figure.row for figure in run.figure}
    results: Results = {
        **facts,
        "lab": name,
        "title": lab.title,
        "question": lab.question,
        "reference": lab.reference,
        "verdict": [*(e if isinstance(e, str) else e["sentence"] for e in effects), *filter(None, sentences)],
        "effects": [effect for effect in effects if not isinstance(effect, str)],
        "rows": {row: what for row, what in lab.rows.items() if row in there},
        "left_out": {row: what for row, what in lab.rows.items() if row not in there},
        "data": [needed.model_dump() for needed in lab.data],
        "stands_in": stands_in,
        "steps": steps,
        "figures": figures,
        "tables": [_table(table, find) for table in run.table],
        "pictures": [picture.model_dump() for picture in run.picture],
        "answers": [_answer(answer, find) for answer in run.answer],
        "seconds": round(sum(step["seconds"] for step in steps), 1),
        "score": _score(figures),
    }
    write_file(out / "results.json", to_json(results, indent=1).encode(errors="backslashreplace"))
    return results


def pick(found: Any, path: str) -> Any:
    """What stands at `path`: names, [index], [max], [min], [key=value,...] for the entry that has these, [*] for all.

    >>> pick({"arms": [{"name": "frozen", "mean": 0.7}, {"name": "full", "mean": 0.8}]}, "arms[name=full].mean")
    0.8
    >>> pick({"curves": [[0.1, 0.7], [0.2, 0.8]]}, "curves[*][-1]")
    [0.7, 0.8]
    >>> pick({"curves": [[0.1, 0.7, 0.6], [None, 0.8]]}, "curves[*][max]")
    [0.7, 0.8]
    """
    for match in _STEP.finditer(path):
        name, selector = match.groups()
        if selector == "*":
            return [pick(each, path[match.end() :]) for each in _entries(found)]
        found = _selected(found, selector) if name is None else _named(found, name)
    return found


def _entries(found: Any) -> Iterable[Any]:
    if not isinstance(found, (dict, list)):
        raise NotFound("[*] is of a list or a table, and this is neither")
    return found.values() if isinstance(found, dict) else found


def _named(found: Any, name: str) -> Any:
    if isinstance(found, dict) and name in found:
        return found[name]
    known = f" ({', '.join(list(found)[:20])})" if isinstance(found, dict) else ""
    raise NotFound(f"'{name}' is not there{known}", did_you_mean(name, found) if known else "")


def _selected(found: Any, selector: str) -> Any:
    """An entry of a list by its index or by its values, or the largest or smallest of its numbers."""
    entries, hint = found if isinstance(found, list) else [], ""
    if re.fullmatch(r"-?\d+", selector):
        chosen = entries[int(selector) :][:1] if -len(entries) <= int(selector) else []
    elif selector in EXTREMES:
        numbers = [value for value in entries if is_number(value)]
        chosen = [EXTREMES[selector](numbers)] if numbers else []
    else:
        wanted = [pair.partition("=") for pair in selector.split(",")]
        key, _, value = wanted[0]
        there = [str(entry.get(key, "")) for entry in entries if isinstance(entry, dict)]
        hint = did_you_mean(value, there)
        chosen = [
            entry
            for entry in entries
            if isinstance(entry, dict) and all(mark and str(entry.get(key)) == value for key, mark, value in wanted)
        ]
    if not chosen:
        raise NotFound(f"[{selector}] is not there", hint)
    return chosen[0]


def _stand_in(needed: Needed, facts: Facts) -> str:
    """What was read in place of the files of the reference."""
    return needed.quick if facts["quick"] else "" if facts["data_dir"] else needed.packs


def _figure(figure: Figure, find: Find, other_data: bool) -> FigureResult:
    interval = _found(find, figure.interval, None)
    is_interval = isinstance(interval, list) and len(interval) == 2 and all(map(is_number, interval))
    found: FigureResult = {
        "row": figure.row,
        "what": figure.what,
        "reference": figure.reference,
        "better": figure.better,
        "substitute": figure.substitute,
        "step": figure.value.partition(": ")[0],
        "ours": None,
        "sd": None,
        "interval": interval if is_interval else None,
        "seeds": None,
        "comparison": "",
    }
    try:
        ours = find(figure.value)
        if isinstance(ours, list) and ours and all(map(is_number, ours)):
            found["sd"], found["seeds"] = stdev(ours) if len(ours) > 1 else None, len(ours)
            ours = mean(ours)
        found["ours"] = ", ".join(map(str, ours)) if isinstance(ours, list) else ours
    except NotFound as missing:
        found["missing"] = f"{figure.value}: {missing}"
    found["seeds"] = _found(find, figure.seeds, found["seeds"])
    found["comparison"] = _comparison(
        found, "equal" if figure.better == "equal" else "" if other_data else figure.better
    )
    return found


def _found(find: Find, place: Place, default: Any) -> Any:
    """What stands at a place, or `default` where nothing does."""
    try:
        return find(place) if place else default
    except NotFound:
        return default


def _comparison(figure: Mapping[str, Any], better: str) -> str:
    """How a figure stands to that of the reference: better, worse, equal, alike, or nothing that can be said.

    What was measured on other data than the reference's is neither better nor worse; a count is what it is.

    >>> ours = {"reference": 0.8, "ours": 0.81, "interval": None, "sd": None}
    >>> _comparison(ours, "higher"), _comparison(ours, "lower"), _comparison({**ours, "ours": 0.8}, "equal")
    ('better', 'worse', 'equal')
    >>> _comparison({**ours, "sd": 0.02}, "higher"), _comparison({**ours, "interval": [0.79, 0.82]}, "higher")
    ('alike', 'alike')
    >>> _comparison({**ours, "ours": "a text"}, "equal"), _comparison(ours, "")
    ('', '')
    """
    ours, reference = figure["ours"], figure["reference"]
    if not better or not (is_number(ours) and is_number(reference)):
        return ""
    if ours == reference or better == "equal":
        return "equal" if ours == reference else "worse"
    around = 2 * (figure["sd"] or 0.0)
    low, high = figure["interval"] or (ours - around, ours + around)
    if low <= reference <= high:
        return "alike"
    return "better" if (ours > reference) == (better == "higher") else "worse"


def _score(figures: Sequence[FigureResult]) -> Score:
    counts = Counter(figure["comparison"] for figure in figures if figure["comparison"])
    return {
        "compared": counts.total(),
        "better": counts["better"],
        "equal": counts["equal"],
        "alike": counts["alike"],
        "worse": counts["worse"],
    }


def _table(table: Table, find: Find) -> TableResult:
    columns, missing = {}, []
    for name, place in table.columns.items():
        try:
            found = find(place)
            if not isinstance(found, list):
                raise NotFound("this is no list")
            columns[name] = means(found) if found and all(isinstance(each, list) for each in found) else found
        except NotFound as error:
            missing.append(f"{place}: {error}")
    rows = [list(row) for row in zip(*columns.values(), strict=False)]
    return {"caption": table.caption, "header": list(columns), "rows": rows, "missing": missing}


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def means(lists: Iterable[Sequence[Any]]) -> list[float | None]:
    """The mean of each place over several lists, of the numbers that are there.

    >>> means([[None, 0.2], [None, 0.4]])
    [None, 0.30000000000000004]
    """
    places = ([value for value in place if is_number(value)] for place in zip(*lists, strict=False))
    return [mean(values) if values else None for values in places]


def _answer(answer: Answer, find: Find) -> AnswerResult:
    try:
        values = {name: _for_text(find(place)) for name, place in answer.values.items()}
        text = answer.text.format_map(values)
    except (NotFound, TypeError, ValueError) as error:  # the latter: None, or a word, where the sentence has a number
        text = f"This was not measured ({error})."
    return {"question": answer.question, "text": text}


def _for_text(value: Any) -> Any:
    """A measured value for a sentence: the mean of several numbers, of other lists the parts in quotes."""
    if isinstance(value, list) and value:
        return mean(value) if all(map(is_number, value)) else ", ".join(f"'{v}'" for v in value)
    return value


def _effect(effect: Effect, find: Find) -> EffectResult | str:
    """The effect, or a sentence that it was not measured."""
    try:
        return measured(effect, find)
    except (NotFound, TypeError, ValueError) as error:
        lost = [place for place in effect.places() if _found(find, place, None) is None]
        return f"{effect.claim}? Not measured: {', '.join(lost or effect.of)} ({error})."


def _verdict(find: Find, place: Place, one_of_several: bool) -> str:
    """A sentence of the results; which step it is of, should there be others."""
    try:
        return f"{place.partition(': ')[0]}: {find(place)}" if one_of_several else str(find(place))
    except NotFound:
        return ""


def _step(lab: Lab, out: Path, facts: Facts, name: str, shows: str) -> StepResult:
    record = read_step(out, name)
    if record is None or record["exit"]:
        raise ModelError(
            f"{out}: the step '{name}' is not done. Run the lab again: it goes on there.", "LAB_UNFINISHED"
        )
    words = lab.commands("OUT", "DIR" if facts["data_dir"] else "", facts["quick"])[name]  # as a reader would type it
    return {"name": name, "shows": shows, "command": shlex.join(["headstart", *words]), "seconds": record["seconds"]}


def shown(value: Any) -> str:
    """A figure as it stands in a table.

    >>> shown(10968200), shown(0.87916), shown(3165.1271), shown("text"), shown(None), shown(2.0)
    ('10,968,200', '0.879', '3,165.1', 'text', '–', '2')
    >>> shown({"negative": 0.98, "zero": 0.02})
    'negative 0.980, zero 0.020'
    """
    match value:
        case None | "":
            return "–"
        case dict():
            return ", ".join(f"{name} {shown(each)}" for name, each in value.items())
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float() if value.is_integer():
            return f"{value:,.0f}"
        case float():
            return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3f}" if abs(value) >= 0.01 else f"{value:.2g}"
    return str(value)


def spread(figure: FigureResult) -> str:
    """The uncertainty of a figure: its interval, else its deviation over seeds."""
    if figure["interval"]:
        return " to ".join(map(shown, figure["interval"]))
    return f"± {shown(figure['sd'])}" if figure["sd"] is not None else ""


def other_data(lab: Summary) -> str:
    """Why the figures of a lab are not those of the reference's data, if so."""
    if lab["quick"]:
        return "This was --quick: fewer seeds and steps, and other data."
    return "This was without --data: packs stand in for files of the reference." if lab.get("stands_in") else ""


def markdown(labs: Sequence[Summary]) -> str:
    """The figures of several labs as a page of Markdown."""
    parts = [
        "# Results\n\nMade by `make labs`, never by hand: the figures of the reference reports beside ours, lab by lab. "
        "Alike: the reference lies in our interval, or within two deviations. Each lab is the file of the day that stands below its "
        "question; later versions may have other steps and effects."
    ]
    for lab in labs:
        environment = lab["environment"]
        caveat = f" **{said} Not to be compared.**" if (said := other_data(lab)) else ""
        parts.append(
            f"## {lab['title']}\n\n{lab['question']}\n\n`headstart lab {lab['lab']}{' --quick' if lab['quick'] else ''}"
            f"{' --data DIR' if lab['data_dir'] else ''}`: {duration(lab['seconds'])} on {environment['machine']}, "
            f"headstart {environment['versions']['headstart']}, torch {environment['versions']['torch']}, "
            f"{environment['started'][:10]}.{caveat}"
        )
        parts += ["> " + sentence.replace("\n", "\n> ") for sentence in lab["verdict"]]
        parts.append(_markdown_table(lab["figures"]))
        parts.append("The steps, with their seconds:")
        parts.append("\n".join(f"- **{s['name']}** ({s['seconds']:.0f} s): `{s['command']}`" for s in lab["steps"]))
    return "\n\n".join(parts) + "\n"


def _markdown_table(figures: Sequence[FigureResult]) -> str:
    lines = [
        "| | what | reference | ours | interval, or deviation | seeds | | step | stands in |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for f in figures:
        ours = f"not found: {f['missing']}" if "missing" in f else shown(f["ours"])
        cells = [
            f["row"],
            f["what"],
            shown(f["reference"]),
            ours,
            spread(f),
            shown(f["seeds"]),
            f["comparison"],
            f["step"],
            f["substitute"],
        ]
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(lines)
