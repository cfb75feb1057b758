"""The bodies of requests: strict, bounded, without unknown keys. None of them holds a path or an address."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from headstart.serve.files import FILE_ID
from headstart.serve.registry import ID
from headstart.serve.settings import Limits
from headstart.study.arms import ARM
from headstart.task import Task

LIMITS = Limits()
Text = Annotated[str, Field(max_length=LIMITS.text)]
Texts = Annotated[list[Text], Field(min_length=1, max_length=LIMITS.batch)]
FileId = Annotated[str, Field(pattern=FILE_ID)]
ModelName = Annotated[str, Field(min_length=1, max_length=200)]  # an id, or a name as GET /v1/models lists it
Column = Annotated[str, Field(min_length=1, max_length=200)]
TokenIds = Annotated[list[Annotated[int, Field(ge=0, le=2**31)]], Field(min_length=1, max_length=100_000)]
Count = Annotated[int, Field(ge=1, le=10_000_000)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=())


class StreamOptions(Body):
    include_usage: bool = False


class CompletionRequest(Body):
    """OpenAI's completions. Settings that have no counterpart here are accepted only where they change nothing."""

    model: ModelName | None = None
    prompt: Text | Texts | TokenIds | Annotated[list[TokenIds], Field(min_length=1, max_length=LIMITS.batch)] = ""
    max_tokens: Annotated[int, Field(ge=0, le=LIMITS.tokens)] | None = 16
    temperature: Annotated[float, Field(ge=0, le=10)] | None = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] | None = 1.0
    top_k: Annotated[int, Field(ge=0, le=100_000)] | None = 0
    n: Annotated[int, Field(ge=1, le=4)] | None = 1
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: bool | None = False
    stop: Annotated[str, Field(max_length=64)] | Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=8)] | None = None  # fmt: skip
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    user: Annotated[str, Field(max_length=200)] | None = None
    best_of: Literal[1] | None = None
    suffix: None = None
    presence_penalty: Literal[0] | None = None
    frequency_penalty: Literal[0] | None = None
    logit_bias: None = None


class EmbeddingsRequest(Body):
    model: ModelName | None = None
    input: Text | Texts
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: None = None
    user: Annotated[str, Field(max_length=200)] | None = None


class PredictRequest(Body):
    # A text, several, or lists of one text or of the two of a pair.
    inputs: Text | Texts | Annotated[list[Annotated[list[Text], Field(min_length=1, max_length=2)]], Field(min_length=1, max_length=LIMITS.batch)]  # fmt: skip
    model: ModelName | None = None
    raw_scores: Literal[False] = False
    truncate: bool = True


class EmbedRequest(Body):
    inputs: Text | Texts
    model: ModelName | None = None
    normalize: bool = True
    truncate: bool = True


class SimilarityInputs(Body):
    source_sentence: Text
    sentences: Texts


class SimilarityRequest(Body):
    inputs: SimilarityInputs
    model: ModelName | None = None


class Split(Body):
    columns: Annotated[list[str], Field(min_length=1, max_length=20)]
    data: Annotated[list[list[str]], Field(max_length=LIMITS.batch)]
    index: list[int] | None = None


class InvocationsRequest(Body):
    """One of the layouts of MLflow's scoring server; texts stand in the column `text`, or in the only one."""

    dataframe_split: Split | None = None
    dataframe_records: Annotated[list[dict[str, str]], Field(max_length=LIMITS.batch)] | None = None
    inputs: Texts | None = None
    instances: Texts | None = None
    model: ModelName | None = None


class TranslateRequest(Body):
    inputs: Text | Texts
    model: ModelName | None = None
    beams: Annotated[int, Field(ge=1, le=8)] = 1


class SearchRequest(Body):
    """A query with the texts to search in; without them, a caption for the images of a matcher."""

    query: Annotated[str, Field(max_length=5000)]
    texts: Annotated[list[Text], Field(max_length=1000)] = []
    top: Annotated[int, Field(ge=1, le=50)] = 10
    model: ModelName | None = None


class TokenizeRequest(Body):
    prompt: Text
    model: ModelName | None = None
    add_special_tokens: bool = True


class DetokenizeRequest(Body):
    tokens: TokenIds
    model: ModelName | None = None


class InspectRequest(Body):
    text: Annotated[str, Field(min_length=1, max_length=5000)]
    tokens: Annotated[int, Field(ge=0, le=64)] = 0


class TableRequest(Body):
    """An uploaded table whose rows are to be labelled."""

    data: FileId
    text_column: Column | None = None  # of pairs, both with a comma; found by its name


class Rows(Body):
    """Labelled rows, by the ids of uploaded files."""

    data: FileId
    valid: FileId | None = None
    test: FileId | None = None
    text_column: Column | None = None
    label_column: Column | None = None
    task: Task | None = None  # found in the labels
    skip_blank: bool = False
    clean_labels: bool = False
    any_labels: bool = False
    balanced: bool = False


Arm = Annotated[str, Field(pattern=rf"^({ARM})$", max_length=20)]
Base = Annotated[str, Field(pattern=ID)]  # an id of GET /api/bases
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$")]
Size = Literal["nano", "micro", "mini", "small", "medium"]
Unit = Literal["line", "sentence", "document"]


class CompareJob(Rows):
    """A study: `headstart compare`."""

    verb: Literal["compare"]
    name: Name | None = None
    bases: Annotated[list[Base], Field(max_length=4)] = []
    arms: Annotated[list[Arm], Field(max_length=16)] = []
    labels: Annotated[list[Count | Literal["all"]], Field(max_length=8)] = []
    seeds: Annotated[int, Field(ge=1, le=20)] = 5
    epochs: Annotated[int, Field(ge=1, le=100)] | None = None
    least_steps: Annotated[int, Field(ge=1, le=10_000)] | None = None
    corpus: Annotated[list[FileId], Field(max_length=8)] = []
    unit: Unit | None = None
    size: Size | None = None
    steps: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


class PretrainJob(Body):
    """A language model: `headstart pretrain`."""

    verb: Literal["pretrain"]
    name: Name | None = None
    corpus: Annotated[list[FileId], Field(min_length=1, max_length=8)]
    objective: Literal["causal", "masked"] = "causal"
    unit: Unit | None = None
    size: Size | None = None
    steps: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    minutes: Annotated[float, Field(gt=0, le=24 * 60)] | None = None
    lr: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=0, le=2**31)] | None = None


class FinetuneJob(Rows):
    """A classifier: `headstart finetune`."""

    verb: Literal["finetune"]
    name: Name | None = None
    base: Base
    init: Literal["pretrained", "scratch"] = "pretrained"
    train: Annotated[str, Field(pattern=r"^(full|head|lora|last:[1-9][0-9]?)$")] | None = None
    epochs: Annotated[int, Field(ge=1, le=100)] | None = None
    labels: Count | None = None
    lr: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=0, le=2**31)] | None = None


class LabJob(Body):
    """A lab that comes with Headstart: `headstart lab NAME --quick`."""

    verb: Literal["lab"]
    lab: Name


PlanRequest = Annotated[CompareJob | PretrainJob | FinetuneJob, Field(discriminator="verb")]
JobRequest = Annotated[CompareJob | PretrainJob | FinetuneJob | LabJob, Field(discriminator="verb")]


LabelName = Annotated[str, Field(min_length=1, max_length=60)]
Author = Annotated[str, Field(pattern=r"^[a-z0-9-]{1,32}$")]  # of a tab
RowNumber = Annotated[int, Field(ge=1, le=2**31)]


class LabellingRequest(Body):
    """A labelling session: `headstart label start`."""

    data: FileId
    name: Name | None = None
    labels: Annotated[list[LabelName], Field(max_length=50)] = []
    base: Base | None = None  # an id of GET /api/bases, tfidf or auto
    text_column: Column | None = None
    label_column: Column | None = None


class NextRequest(Body):
    by: Author
    count: Annotated[int, Field(ge=1, le=20)] = 1
    holding: Annotated[list[RowNumber], Field(max_length=40)] = []  # rows that the tab has already


class AnswerRequest(Body):
    by: Author
    row: RowNumber
    event: Literal["label", "skip", "undo"]
    label: LabelName | None = None
