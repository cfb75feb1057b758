"""What the JSON files of runs and studies hold, as far as it is read: the shapes that records.py checks. No torch.

What else stands there is passed over.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from headstart.task import Task

Count = Annotated[int, Field(ge=0, le=2**53)]  # more than that is no count
Pair = Annotated[list[float], Field(min_length=2, max_length=2)]


class Shape(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False, protected_namespaces=())


class _Asked(Shape):
    job: str = "pretrain"


class _Versions(Shape):
    headstart: str = ""


class Environment(Shape):
    """env.json"""

    format: int
    asked: _Asked = _Asked()
    versions: _Versions = _Versions()
    started: str | None = None
    seed: int | None = None
    not_bit_identical: list[str] = []


class _File(Shape):
    file: str
    sha256: str


class Files(Shape):
    """data.json, as far as all jobs have it"""

    files: list[_File]
    tokenizer_sha256: str | None = None
    split_sha256: str | None = None
    pictures_sha256: str | None = None


class Rows(Shape):
    train: int


class Images(Shape):
    train: Annotated[int, Field(ge=1)]
    test: int


class TranslateData(Files):
    rows: Rows


class MatchData(Files):
    images: Images


class Score(Shape):
    value: float
    interval: Pair | None  # None where there are too few rows for one


class _Bleu(Score):
    signature: str


class _ClassScores(Shape):
    accuracy: float
    interval: Pair
    macro_f1: float
    rows: int


class _TaskScores(Shape):
    """Of a task other than classify, under their usual names"""

    rows: int
    loss: float | None = None
    without_overlap: dict[str, Any] | None = None


class _ValidScores(_ClassScores):
    loss: float


class _TestScores(_ClassScores):
    without_overlap: _ClassScores | None = None


class _LanguageScores(Shape):
    loss: float
    perplexity: float | None = None
    bits_per_byte: float | None = None
    similarity: float | None = None


class _TranslationScores(Shape):
    loss: float
    loss_interval: Pair | None
    target_tokens: int
    exact_match: Score
    character_error_rate: Score
    token_error_rate: Score
    bleu: _Bleu
    chrf: Score
    rows: int


class _Recalls(Shape):
    at_1: Score = Field(alias="recall@1")
    at_5: Score = Field(alias="recall@5")
    at_10: Score = Field(alias="recall@10")


class _Chance(Shape):
    text_to_image: dict[str, float]
    image_to_text: dict[str, float]


class _MatchScores(Shape):
    images: int
    captions: int
    text_to_image: _Recalls
    image_to_text: _Recalls
    chance: _Chance


class Baseline(Shape):
    """result.json of an arm without a transformer, and what all results have"""

    seconds: float
    rate: float | None = None
    tokens: int | None = None
    parameters: int | None = None
    trained_parameters: int | None = None


class _Result(Baseline):
    run: str
    steps: int
    best_step: int
    parameters: int


class _TrainLoss(Shape):
    loss: float
    entropy: float | None = None


class _Beside(Shape):
    untrained: float | None = None
    xz: float | None = None


class Pretrained(_Result):
    train: _TrainLoss
    valid: _LanguageScores | None
    beside: _Beside | None
    tokens_per_second: float
    preparing_seconds: float | None = None


class _Commonest(Shape):
    label: str
    valid: float | None = None
    test: float | None = None


class _CalibrationErrors(Shape):
    ece_before: float
    ece_after: float


class _Calibration(Shape):
    temperature: float | None
    test: _CalibrationErrors | None


class Conformal(Shape):
    """conformal.json: the nonconformity of the validation rows, sorted"""

    method: Literal["lac"]
    scores: list[Annotated[float, Field(ge=0, le=1)]]


class Finetuned(_Result):
    task: Task = "classify"
    valid: _ValidScores | None
    test: _TestScores | None
    commonest: _Commonest
    overlapping_test_rows: int | None
    trained_parameters: int
    calibration: _Calibration | None = None

    @model_validator(mode="before")
    @classmethod
    def scores_are_of_the_task(cls, given: Any) -> Any:
        """Other tasks have other scores."""
        if not isinstance(given, dict) or given.get("task", "classify") == "classify":
            return given
        for part in ("valid", "test"):
            if given.get(part) is not None:
                _TaskScores.model_validate(given[part])
        return {**given, "valid": None, "test": None}


class _Overlapping(Shape):
    valid: int
    test: int


class Translated(_Result):
    kind: str
    hidden: int
    valid: _TranslationScores | None
    test: _TranslationScores | None
    overlapping: _Overlapping
    samples: dict[str, str]


class Matched(_Result):
    text: str
    image: str
    valid: _MatchScores | None
    test: _MatchScores | None
    trained_parameters: int


class FinetuneReceipt(Shape):
    """receipt.json"""

    base: str
    init: str
    copied: list[str]
    new: list[str]
    frozen: dict[str, str]
    base_sha256_before: str
    frozen_moved: list[str] = []
    base_sha256_after: str = ""


class _Towers(Shape):
    text: str
    image: str


class MatchReceipt(Shape):
    frozen: list[Literal["text", "image"]]
    towers_sha256_before: _Towers


class MatchSplit(Shape):
    """split.json: the SHA-256 of each image by its name"""

    train: dict[str, str]
    valid: dict[str, str]
    test: dict[str, str]


class Logged(Shape):
    """A line of log.jsonl"""

    split: str = ""


class _Wall(Shape):
    seconds: float


class Step(Logged):
    step: int
    loss: float
    wall: _Wall


class Evaluation(Logged):
    step: int
    loss: float


class ClassEvaluation(Evaluation):
    accuracy: float | None = None


class Prediction(Shape):
    """A line of predictions.jsonl of a classifier"""

    prediction: str | list[str] | float
    probabilities: dict[str, float] | None = None  # of numbers there are none


class _Base(Shape):
    path: str
    shape: str
    sha256: str
    language_head: bool = True


class _Failure(Shape):
    cell: str
    exit: int
    message: str


class _Overlaps(Shape):
    test: list[int]


class _Hygiene(Shape):
    overlapping_rows: _Overlaps
    warnings: list[str]


class _StudyData(Files):
    rows: dict[str, Count]
    labels: dict[str, dict[str, Count]]
    split_sha256: str
    hygiene: _Hygiene


class _StudyEnvironment(Shape):
    command: Annotated[list[str], Field(min_length=1)]
    versions: dict[str, str]
    started: str
    platform: str
    threads: int | None = None


class StudyState(Shape):
    """study.json; what comes after the environment is missing while the study has not come that far"""

    data: _StudyData
    environment: _StudyEnvironment
    bases: dict[str, _Base] = {}
    rates: dict[str, float] = {}
    failures: list[_Failure] = []


class GridSettings(Shape):
    """ladder.json and towers.json"""

    settings: dict[str, Any]
    data: dict[str, list[str]]


class _StudyCost(Shape):
    seconds: float
    pretraining_seconds: float


class StudyResults(Shape):
    """results.json, as far as a list of studies tells of it"""

    verdict: str
    cost: _StudyCost
