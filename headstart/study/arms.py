"""The arms of a study, one row each: what an arm is, in which words, how it is drawn, and what computes it. No torch.

Whatever tells arms apart asks the row. A baseline is a row and the function that it names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from headstart.task import Input, Task

# Tried on the validation rows; the middle one is used where there are too few to choose on. The head of a frozen base
# starts from a linear probe, its optimum but for the regularization; an external model was pretrained for long.
HEAD_RATES, OWN_RATES, RATES_ELSEWHERE = (1e-4, 3e-4, 1e-3), (3e-4, 1e-3, 3e-3), (2e-5, 5e-5, 1e-4)
UNRANKED = 99


@dataclass(frozen=True)
class ArmKind:
    """A kind of arm. What is false for most arms has a default."""

    name: str
    words: str  # what the page of a new study says of it; a verdict too, of an arm without a base
    rank: int = UNRANKED  # of two arms a verdict speaks of the one with the lower
    base: Literal["none", "shape", "weights"] = "none"  # what it takes of a base
    short: str = ""  # fewer words for a verdict, of an arm without a base
    dash: Any = None  # of its line, as matplotlib takes it, of an arm without a base
    # Which rows it is for.
    only: Task | None = None  # the one task it is for
    whole: bool = False  # it reads a text as a whole, so not where each word has a label
    reads: Input | None = None  # the one input it is for
    usual: bool = False  # of a study that names no arms; the baselines of each task are those of its Target
    listed: bool = True  # in the help of --arms; what only studies of such rows have, these have unasked
    # What it learns from and is compared with.
    labelled: bool = True  # without labels, one cell stands for all label counts
    constant: bool = False  # the same answer for every row
    linear: bool = False  # the baseline that a transformer is measured by
    joined: bool = False  # a base and TF-IDF
    one_side: bool = False  # it sees one text of a pair
    asks: bool = False  # it asks a language head for label words, so it is for bases that have one
    pools_zero_shot: bool = False  # with the zero-shot scores of the first base that has a language head
    partner: str = ""  # the arm that it is without the one thing that it adds: TF-IDF, or labels
    # How a run of it is trained.
    run: bool = False  # its cells are runs, with a learning rate, a log and a receipt
    prompted: bool = False
    scope: str = ""  # what is trained, where it is not called the same
    rates: tuple[float, ...] = OWN_RATES
    rates_elsewhere: tuple[float, ...] = RATES_ELSEWHERE  # of an external model
    # How an arm that is no run is computed.
    made: str = ""  # module:function; takes the labelled rows and `given`, of an arm with a base the settings, the cell, the rows and the folder of the study
    given: tuple[str, ...] = ()  # settings of the study
    after: str = ""  # the arm whose scores it takes
    effort: float = 1.0  # times as long as TF-IDF with logistic regression; 0: no time

    @property
    def based(self) -> bool:
        return self.base != "none"

    @property
    def pretrained(self) -> bool:
        return self.base == "weights"

    @property
    def keeps_model(self) -> bool:
        """All but linear models on what a base makes of texts."""
        return self.run or not self.based or not self.labelled


BASELINES_OF_TEXTS = (
    ArmKind(
        "majority", "always predicting the majority class", 20, short="the majority class", dash=(0, (1, 1.8)),
        whole=True, constant=True, made="headstart.study.baselines:majority", effort=0,
    ),
    ArmKind(
        "constant", "always predicting the same", 21, short="a constant answer", dash=(0, (1, 1.8)), listed=False,
        constant=True, made="headstart.study.baselines:majority", effort=0,
    ),
    ArmKind(
        "tfidf", "TF-IDF with logistic regression", 14, short="TF-IDF", dash=(0, (5, 2)), whole=True, linear=True,
        made="headstart.study.baselines:tfidf",
    ),
    ArmKind(
        "static", "averaged word vectors with logistic regression", 12, short="averaging word vectors",
        dash=(0, (5, 2, 1, 2)), whole=True, made="headstart.study.baselines:static", given=("static_vectors",), effort=3,  # two weightings of dense rows
    ),
    ArmKind(
        "lexicon", "a sentiment lexicon (VADER)", 13, short="a sentiment lexicon", dash=(0, (2, 1)), only="classify",
        reads="text", labelled=False, made="headstart.study.baselines:lexicon", given=("label_words",), effort=0,
    ),
)  # fmt: skip
BASELINES_OF_PAIRS = (
    ArmKind(
        "overlap", "the words that both texts share", 15, short="word overlap", dash=(0, (3, 1)), reads="pair",
        usual=True, listed=False, made="headstart.study.pair_baselines:overlap",
    ),
    ArmKind(
        "first-only", "the first text alone (TF-IDF)", 17, short="the first text alone", dash=(0, (3, 1, 1, 1)),
        reads="pair", usual=True, listed=False, one_side=True, made="headstart.study.pair_baselines:first_only",
    ),
    ArmKind(
        "second-only", "the second text alone (TF-IDF)", 16, short="the second text alone",
        dash=(0, (3, 1, 1, 1, 1, 1)), reads="pair", usual=True, listed=False, one_side=True,
        made="headstart.study.pair_baselines:second_only",
    ),
)  # fmt: skip
BASELINES_OF_TAGS = (
    ArmKind(
        "most-frequent-tag", "the most frequent tag of each word", 19, short="the most frequent tag of each word",
        dash=(0, (2, 1)), only="tag", made="headstart.study.tag_baselines:most_frequent_tag",
    ),
    ArmKind(
        "crf", "a conditional random field", 18, short="a conditional random field", dash=(0, (5, 2)), only="tag",
        linear=True, made="headstart.study.tag_baselines:crf",
    ),
)  # fmt: skip
TUNED = (
    ArmKind("scratch", "the shape of the base, not pretrained", 11, "shape", usual=True, run=True, scope="full", rates_elsewhere=(5e-5, 1e-4, 3e-4)),
    ArmKind("frozen", "a new head on the base as it is", 5, "weights", usual=True, run=True, scope="head", rates=HEAD_RATES, rates_elsewhere=HEAD_RATES),
    ArmKind(
        "contrastive", "the base, fine-tuned on pairs of rows (SetFit)", 4, "weights", only="classify", reads="text",
        run=True, scope="full", rates=HEAD_RATES, rates_elsewhere=(1e-5, 2e-5, 5e-5),
    ),
    ArmKind("last:K", "", 2, "weights", run=True),
    ArmKind("lora", "the base with LoRA adapters", 3, "weights", run=True, rates_elsewhere=HEAD_RATES),
    ArmKind("full", "the whole base, fine-tuned", 1, "weights", usual=True, run=True),
)  # fmt: skip
ON_A_BASE = (
    ArmKind(
        "hybrid", "the base as it is, and TF-IDF", 9, "weights", whole=True, joined=True, partner="frozen",
        made="headstart.study.joined:hybrid", effort=12,  # five shares of both
    ),
    ArmKind(
        "stack", "the fine-tuned base, and TF-IDF", 8, "weights", only="classify", joined=True, partner="full",
        made="headstart.study.joined:stack", after="full",
    ),
    ArmKind(
        "bi-encoder", "both texts by the base as it is", 10, "weights", reads="pair", usual=True, listed=False,
        made="headstart.study.bi_encoder:bi_encoder", effort=12,
    ),
)  # fmt: skip
ASKED_IN_WORDS = (
    ArmKind("zero-shot", "the probabilities of the label words, without labels", 7, "weights", only="classify", reads="text", asks=True, labelled=False),
    ArmKind(
        "ensemble", "a linear probe on the base, and zero-shot", 6, "weights", only="classify", reads="text", pools_zero_shot=True,
        partner="zero-shot", made="headstart.study.ensemble:ensemble", after="zero-shot",
    ),
    ArmKind(
        "prompt", "the base, fine-tuned on a prompt", 0, "weights", only="classify", reads="text", asks=True,
        partner="zero-shot", run=True, prompted=True, scope="full", rates_elsewhere=(5e-6, 1e-5, 3e-5),
    ),
    ArmKind(
        "prompt:frozen", "a new head at the end of a prompt", 0, "weights", only="classify", reads="text",
        asks=True, partner="zero-shot", run=True, prompted=True, scope="head", rates_elsewhere=HEAD_RATES,
    ),
    ArmKind(
        "prompt:lora", "LoRA adapters on a prompt", 0, "weights", only="classify", reads="text", asks=True,
        partner="zero-shot", run=True, prompted=True, scope="lora", rates_elsewhere=HEAD_RATES,
    ),
)  # fmt: skip
ARMS: dict[str, ArmKind] = {
    kind.name: kind
    for kind in (
        *BASELINES_OF_TEXTS, *BASELINES_OF_PAIRS, *BASELINES_OF_TAGS, *TUNED, *ON_A_BASE, *ASKED_IN_WORDS,
    )
}  # fmt: skip
ARM = "|".join(ARMS).replace("last:K", r"last:[1-9]\d*")
BASELINES = tuple(name for name, kind in ARMS.items() if not kind.based)


def listed_arms() -> str:
    """The arms for the help of --arms, those of tags last."""
    shown = {name: f"{name} (class)" if name == "majority" else name for name, kind in ARMS.items() if kind.listed}
    of_tags = [name for name in shown if ARMS[name].only == "tag"]
    return f"{', '.join(text for name, text in shown.items() if name not in of_tags)}; of tags {', '.join(of_tags)}"


def arm_kind(name: str) -> ArmKind:
    """The row of an arm. Results of another version may have an arm that this one has not.

    >>> arm_kind("last:2").name, arm_kind("crf").linear, arm_kind("of another version").pretrained
    ('last:K', True, False)
    """
    last = name.partition(":")[0] == "last"
    return ARMS.get("last:K" if last else name) or ArmKind(name, "", base="shape", run=True)
