"""A tag for each word of a row (token classification): names of people and places, parts of speech.

A row is a sentence: its text are words with one space between them, its label the tags of the words, likewise. Encoded tags are
(N, W): numbers of tags, and PADDING behind the last word of each row. Outputs are decided tags of the same shape, because
a conditional random field decides all tags of a sentence at once and not each by its probability.

Entities are what seqeval finds in tags that begin with B-, I-, E- or S-; their F1 leads. Other tags are scored word by word.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from headstart.targets.class_scores import PerClassScores, macro_f1, scores_by_class
from headstart.targets.smooth import pseudo_values
from headstart.targets.target import Encoded, Outputs, Record, Scores, Target
from headstart.task import Task

PADDING = -1  # behind the last word of a row
OUTSIDE = "O"  # of every entity
MOST_SHOWN = 20  # tags in a note
_IOB = re.compile(r"([BIESLU])-(.+)")  # L and U are what BILOU calls E and S
_MEANS = {"L": "E", "U": "S"}


class Entity(NamedTuple):
    kind: str
    start: int  # its first word
    end: int  # the word behind its last


def are_iob(tags: Sequence[str]) -> bool:
    """Whether tags mark entities: each is O, or B-, I-, E- or S- and a type.

    >>> are_iob(["O", "B-PER", "I-PER"]), are_iob(["NOUN", "VERB"]), are_iob(["O"])
    (True, False, False)
    """
    named = [tag for tag in set(tags) if tag != OUTSIDE]
    return bool(named) and all(_IOB.fullmatch(tag) for tag in named)


def entities(tags: Sequence[str]) -> list[Entity]:
    """The entities in the tags of one sentence, by the rules of seqeval and of conlleval before it.

    An entity begins where another type does, too: whatever a model says, each tag but O is part of one.

    >>> entities(["B-PER", "I-PER", "O", "I-LOC", "B-LOC", "S-PER"])  # doctest: +NORMALIZE_WHITESPACE
    [Entity(kind='PER', start=0, end=2), Entity(kind='LOC', start=3, end=4), Entity(kind='LOC', start=4, end=5),
     Entity(kind='PER', start=5, end=6)]
    """
    found: list[Entity] = []
    before, kind, start = OUTSIDE, "", 0
    for i, tag in enumerate([*tags, OUTSIDE]):
        match = _IOB.fullmatch(tag)
        mark, own = (_MEANS.get(match[1], match[1]), match[2]) if match else (OUTSIDE, "")
        new = mark in "BS" or before in "ESO" or own != kind
        if before != OUTSIDE and (new or mark == OUTSIDE):
            found.append(Entity(kind, start, i))
        if mark != OUTSIDE and new:
            start = i
        before, kind = mark, own
    return found


def as_iob2(tags: Sequence[str]) -> list[str]:
    """The same entities in IOB2: B- where one begins, I- inside.

    >>> as_iob2(["I-PER", "I-PER", "O", "S-LOC", "B-LOC", "E-LOC"])
    ['B-PER', 'I-PER', 'O', 'B-LOC', 'B-LOC', 'I-LOC']
    """
    written = [OUTSIDE] * len(tags)
    for kind, start, end in entities(tags):
        written[start:end] = [f"B-{kind}", *[f"I-{kind}"] * (end - start - 1)]
    return written


def stretches(words: Sequence[str], tags: Sequence[str]) -> list[tuple[str, str]]:
    """A sentence in stretches with the type of each, or with the tag of each word; nothing for words outside.

    >>> stretches(["Ada", "Lovelace", "wrote"], ["B-PER", "I-PER", "O"])
    [('Ada Lovelace', 'PER'), ('wrote', '')]
    >>> stretches(["it", "rains"], ["PRON", "VERB"])
    [('it', 'PRON'), ('rains', 'VERB')]
    """
    found = entities(tags)
    if not found and set(tags) - {OUTSIDE}:
        return list(zip(words, tags, strict=True))
    parts, done = [], 0
    for kind, start, end in found:
        if start > done:
            parts.append((" ".join(words[done:start]), ""))
        parts.append((" ".join(words[start:end]), kind))
        done = end
    return parts if done == len(words) else [*parts, (" ".join(words[done:]), "")]


@dataclass(frozen=True)
class Tags(Target):
    names: tuple[str, ...]  # sorted; of entities O, and both tags of each type
    width: int = 0  # words of the longest row there is

    task: ClassVar[Task] = "tag"
    card = "A model that tags the words of a text"
    label_is, noun = "a tag for each word", "a tagger of words"
    preset = "bert"
    rows = "tags of words"
    baselines = ("most-frequent-tag", "crf")
    by_word = True
    job = "headstart.jobs.tag:Tagging"
    loaded = "headstart.use.tag:LoadedTagger"
    shown_rows = "headstart.study.tag_rows:tagged_rows"
    onnx = "headstart.use.onnx_tag:OnnxTagger"
    inspector = "headstart.use.inspect_tags:TagInspector"
    of_held_out = True
    titles: ClassVar[Mapping[str, str]] = {
        "f1": "entity F1",
        "precision": "entity precision",
        "recall": "entity recall",
        "accuracy": "token accuracy",
        "macro_f1": "macro-F1 of tags",
    }

    @classmethod
    def of(cls, labels: Sequence[str], separator: str = "") -> Self:
        tags = {tag for cell in labels for tag in cell.split(" ")}
        if are_iob(list(tags)):
            kinds = sorted({tag[2:] for tag in tags if tag != OUTSIDE})
            tags = {OUTSIDE, *(f"{mark}-{kind}" for kind in kinds for mark in "BI")}
        return cls(tuple(sorted(tags))).wide_enough(labels)

    @classmethod
    def fault(cls, text: str, label: str, separator: str = "") -> str | None:
        words, tags = text.count(" ") + 1, label.count(" ") + 1
        return f"{words} words and {tags} tags, which --task tag needs one of each word" if words != tags else None

    def wide_enough(self, labels: Sequence[str]) -> Self:
        """For these rows too."""
        return replace(self, width=max(self.width, *(cell.count(" ") + 1 for cell in labels or [""])))

    @cached_property
    def of_entities(self) -> bool:
        return are_iob(self.names)

    @property
    def measures(self) -> Sequence[str]:
        return ("f1", "precision", "recall", "accuracy") if self.of_entities else ("accuracy", "macro_f1")

    def encode(self, labels: Sequence[str]) -> Encoded:
        places = {name: i for i, name in enumerate(self.names)}
        found = np.full((len(labels), self.width), PADDING, dtype=np.int32)
        for row, cell in enumerate(labels):
            tags = [places[tag] for tag in cell.split(" ")]
            found[row, : len(tags)] = tags
        return found

    def answers(self, outputs: Outputs) -> Encoded:
        return np.asarray(outputs).astype(np.int32)

    def written(self, answer: Any) -> list[str]:
        return [self.names[int(tag)] for tag in answer if tag != PADDING]

    def shown(self, answer: Any) -> str:
        """The tags; one alone where all are the same."""
        tags = self.written(answer)
        return " ".join(tags) if len(set(tags)) > 1 else tags[0] if tags else ""

    def answer_of(self, written: Any) -> Any:
        return self.encode([" ".join(written)])[0]

    def record(self, label: str, answer: Any, outputs: Sequence[float]) -> Record:
        known = label.split(" ")
        return {"label": known, "prediction": self.written(answer[: len(known)])}

    def read(self, record: Mapping[str, Any]) -> tuple[Any, list[float]]:
        answer = self.answer_of(record["prediction"])
        return answer, answer.tolist()

    def scores(self, truth: Encoded, answers: Encoded) -> Scores:
        known = truth != PADDING
        found: Scores = {"accuracy": float((truth == answers)[known].mean()), "rows": len(truth)}
        if self.of_entities:
            sums = self._entity_counts(truth, answers).sum(0)
            found |= {name: float(score(sums)) for name, score in _OF_ENTITIES.items()}
        else:
            found["macro_f1"] = float(macro_f1(self._confusions(truth, answers).sum(0).reshape(self._square)))
        return {**{key: found[key] for key in self.measures}, "rows": len(truth), "words": int(known.sum())}

    def row_values(self, score: str, truth: Encoded, answers: Encoded) -> NDArray[np.float64] | None:
        if score == "accuracy":
            known = truth != PADDING
            rows = np.stack([((truth == answers) & known).sum(1), known.sum(1)], axis=1).astype(np.float64)
            return pseudo_values(lambda sums: sums[0] / sums[1], rows)
        if score == "macro_f1":
            return pseudo_values(lambda sums: macro_f1(sums.reshape(self._square)), self._confusions(truth, answers))
        return pseudo_values(_OF_ENTITIES[score], self._entity_counts(truth, answers))

    def by_type(self, truth: Encoded, answers: Encoded) -> dict[str, PerClassScores]:
        """Precision, recall and F1 of each type of entity, or of each tag; `rows` are entities or words."""
        if not self.of_entities:
            known = truth != PADDING
            each = scores_by_class(truth[known].tolist(), answers[known].tolist(), len(self.names))
            return dict(zip(self.names, each, strict=True))
        counts: dict[str, NDArray[np.int64]] = {}
        for known, said in self._entities(truth, answers):
            for i, part in enumerate((known & said, said, known)):
                for entity in part:
                    counts.setdefault(entity.kind, np.zeros(3, dtype=np.int64))[i] += 1
        return {kind: _of_type(*counts[kind].tolist()) for kind in sorted(counts)}

    def leading(self, labels: Sequence[str]) -> str:
        return "f1" if self.of_entities else "accuracy"

    def constant(self, truth: Encoded) -> NDArray[np.float64]:
        commonest = np.bincount(truth[truth != PADDING], minlength=len(self.names)).argmax()
        return np.full(truth.shape[1], float(commonest))

    @property
    def described(self) -> str:
        if self.of_entities:
            kinds = sorted({name[2:] for name in self.names if name != OUTSIDE})
            return f" (entities of {len(kinds)} types in IOB2: {', '.join(kinds[:10])}{', ...' if len(kinds) > 10 else ''})"
        return f" ({len(self.names)} tags)"

    def strata(self, labels: Sequence[str]) -> list[Hashable]:
        """The rarest type of entity in each row, so that rare ones are in every part; nothing of other tags."""
        if not self.of_entities:
            return [""] * len(labels)
        rows = [{entity.kind for entity in entities(cell.split(" "))} for cell in labels]
        counts = Counter(chain.from_iterable(rows))
        return [min(row, key=lambda kind: (counts[kind], kind), default="") for row in rows]

    def counts(self, labels: Sequence[str]) -> dict[str, int]:
        """Entities by type, or words by tag."""
        rows = [cell.split(" ") for cell in labels]
        names = (entity.kind for row in rows for entity in entities(row)) if self.of_entities else chain(*rows)
        return dict(sorted(Counter(names).items()))

    def with_held_out(self, labels: Sequence[str], note: Callable[[str, str], None]) -> Self:
        """Wide enough for all rows, and with the tags of held-out rows that no training row has: no reason to score nothing."""
        if strange := self.strange(labels):
            told = ", ".join(map(repr, strange[:MOST_SHOWN]))
            note("tags", f"No training row has the tags {told} of held-out rows: they count as mistakes.")
        return replace(self, names=tuple(sorted({*self.names, *strange}))).wide_enough(labels)

    @property
    def list_column(self) -> str:
        return "entities" if self.of_entities else "tags"

    def listed(self, record: Mapping[str, Any]) -> list[Any]:
        return record["entities" if self.of_entities else "label"]

    def scored(self, record: Mapping[str, Any]) -> list[Any]:
        words = zip(record["tokens"], record["label"], record["tag_probabilities"], strict=True)
        return [{"label": label, "score": score, "word": word} for word, label, score in words]

    def in_text(self, record: Mapping[str, Any]) -> str:
        """Entities in brackets, or a slash and the tag behind each word.

        >>> entity = {"text": "Ada", "label": "PER", "start": 0, "end": 3}
        >>> record = {"text": "Ada wrote", "label": ["B-PER", "O"], "tokens": ["Ada", "wrote"], "entities": [entity]}
        >>> Tags(("B-PER", "I-PER", "O")).in_text(record)
        '[Ada PER] wrote'
        """
        text, tags, done, parts = record["text"], record["label"], 0, list[str]()
        if not record["entities"] and set(tags) - {OUTSIDE}:
            return " ".join(f"{word}/{tag}" for word, tag in zip(record["tokens"], tags, strict=True))
        for entity in record["entities"]:
            parts += [text[done : entity["start"]], f"[{entity['text']} {entity['label']}]"]
            done = entity["end"]
        return "".join([*parts, text[done:]])

    def strange(self, labels: Sequence[str]) -> list[str]:
        return sorted({tag for cell in labels for tag in cell.split(" ")} - set(self.names))

    @property
    def _square(self) -> tuple[int, int]:
        return len(self.names), len(self.names)

    def _entities(self, truth: Encoded, answers: Encoded) -> list[tuple[set[Entity], set[Entity]]]:
        """Those of each row, known and said."""
        found = []
        for known, said in zip(truth, answers, strict=True):
            words = int((known != PADDING).sum())
            found.append((set(entities(self.written(known))), set(entities(self.written(said[:words])))))
        return found

    def _entity_counts(self, truth: Encoded, answers: Encoded) -> NDArray[np.float64]:
        """(N, 3): entities of each row that are right, that are said, and that there are."""
        rows = [(len(known & said), len(said), len(known)) for known, said in self._entities(truth, answers)]
        return np.array(rows, dtype=np.float64).reshape(-1, 3)

    def _confusions(self, truth: Encoded, answers: Encoded) -> NDArray[np.float64]:
        """(N, C * C): the confusion table of each row."""
        found = np.zeros((len(truth), len(self.names) ** 2))
        row, place = np.nonzero(truth != PADDING)
        cells = truth[row, place].astype(np.int64) * len(self.names) + answers[row, place]
        np.add.at(found, (row, cells), 1)
        return found


def _ratio(above: Any, below: Any) -> Any:
    return above / below if below != 0 else below * 0


_OF_ENTITIES = {  # of the sums of right, said and true entities; 0 where there is nothing to divide by, as in seqeval
    "f1": lambda sums: _ratio(2 * sums[0], sums[1] + sums[2]),
    "precision": lambda sums: _ratio(sums[0], sums[1]),
    "recall": lambda sums: _ratio(sums[0], sums[2]),
}


def _of_type(right: int, said: int, known: int) -> PerClassScores:
    return {
        "rows": known,
        "precision": right / said if said else None,
        "recall": right / known if known else None,
        "f1": 2 * right / (said + known) if said + known else None,
    }
