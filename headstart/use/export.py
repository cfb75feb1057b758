"""A finished run as a model that opens without Headstart: in plain transformers, or in onnxruntime.

In transformers a classifier is a base with one of its own heads, and these differ from ours: BERT's has a dense layer
and a tanh in front, GPT-2's has no bias. The weights written here make them compute the same: a layer that passes its
input on unchanged, a bias carried by the norm before it. What cannot be made the same is refused by name.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import torch
from safetensors.torch import save
from tokenizers import normalizers
from tokenizers.normalizers import Prepend, Strip
from tokenizers.processors import TemplateProcessing
from torch import Tensor

from headstart.errors import ModelError, UserError
from headstart.models.huggingface import KINDS, token_types
from headstart.models.layout import counterpart, to_disk
from headstart.regular_file import read_regular
from headstart.runs.card import named, plain
from headstart.runs.checkpoint import weights
from headstart.runs.disk import make_folder, write_file
from headstart.runs.model_dir import Saved, complaints, describe_model, read_model
from headstart.runs.run import Run
from headstart.shapes import HuggingFaceConfig, TransformerConfig
from headstart.strict_json import to_json
from headstart.targets.tasks import TARGETS
from headstart.text.batch import pad
from headstart.text.inputs import INPUTS
from headstart.text.prompted import prompt_tokens
from headstart.text.tokenizer import Tokenizer
from headstart.use.language import refuse_distilled

# A dense layer and a tanh pass on what is this small: a power of two, so that nothing is rounded on the way.
SMALL = 2.0**-12
ALLOWED = 1e-4  # difference of a logit; what is larger is a fault of ours, and nothing is left behind
Tensors = dict[str, Tensor]


# What was written: the folder, the class of transformers, the largest difference of a logit from the run.
TransformersExport = TypedDict("TransformersExport", {"out": str, "class": str, "largest_difference": float})


def export_transformers(run: str | Path, out: str | Path) -> TransformersExport:
    """A folder that transformers' Auto classes open, with the same logits; what was written and how it was checked."""
    opened, folder = Run.open(run), Path(out)
    if folder.exists():
        raise UserError(f"{folder} already exists. Choose another --out.", "RUN_EXISTS")
    saved = read_model(opened.path / "model")
    refuse_distilled(opened, run)
    described, tensors = _theirs(saved, str(run))
    make_folder(folder.parent)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".export-") as place:
        draft = Path(place) / "model"
        draft.mkdir()
        whole = {name: t.cpu().contiguous() for name, t in tensors.items()}
        write_file(draft / "model.safetensors", save(whole, {"format": "pt"}))
        _write_json(draft / "config.json", described)
        _write_tokenizer(draft, saved)
        if saved.head.kind == "language" and saved.config.causal:
            ids = ("bos_token_id", "eos_token_id", "pad_token_id")
            _write_json(draft / "generation_config.json", {name: described[name] for name in ids})
        write_file(draft / "README.md", card(opened, saved, described["architectures"][0]).encode())
        difference = _difference(draft, saved)
        draft.rename(folder)
    return {"out": str(folder), "class": described["architectures"][0], "largest_difference": difference}


def _theirs(saved: Saved, name: str) -> tuple[dict[str, Any], Tensors]:
    """config.json and tensors of the class of transformers that computes what the model does."""
    cfg, spec = saved.config, saved.head
    model_type = cfg.model_type if isinstance(cfg, HuggingFaceConfig) else counterpart(cfg)
    if model_type is None:
        changed = isinstance(cfg, TransformerConfig) and cfg.preset != "classic"
        what = f"the preset '{cfg.preset}'" if isinstance(cfg, TransformerConfig) else "a Universal Sentence Encoder"
        raise ModelError(
            f"{name} has {what}{' with a changed structure' if changed else ''}, which "
            "transformers has no class for. gpt and bert as they are, and models that came from transformers, can be "
            "exported; --to onnx takes any."
        )
    classes, causal = KINDS[model_type].classes, cfg.causal
    padding = KINDS[model_type].padding
    if padding is not None and saved.tokenizer.pad != padding:
        raise ModelError(
            f"{name} pads with the token {saved.tokenizer.pad}, but {classes} of transformers takes the token {padding} "
            "for padding, wherever it stands. export --to onnx takes any."
        )
    described = {key: value for key, value in describe_model(saved).items() if key != "headstart"}
    tensors = to_disk(weights(saved.model), cfg)
    if spec.target.by_word:
        head, linear = "ForTokenClassification", KINDS[model_type].head["head.linear"]
        theirs = "score" if causal and model_type != "gpt2" else "classifier"
        tensors = {f"{theirs}{key.removeprefix(linear)}" if key.startswith(linear) else key: t for key, t in tensors.items()}  # fmt: skip
    elif spec.kind == "classify":
        head = "ForSequenceClassification"
        if spec.prompt and not causal:
            raise ModelError(
                f"{name} reads the mask token of a prompt, which no {classes}{head} does. Use export --to onnx."
            )
        if spec.pool != ("last" if causal else "cls"):
            raise ModelError(
                f"{name} reads its texts by the pooling '{spec.pool}', which no {classes}{head} does. Fine-tune with "
                f"--pool {'last' if causal else 'cls'}, or export --to onnx."
            )
        refuse_windows(saved, name)
        tensors = _class_tensors(tensors, model_type, saved, name)
        if spec.task == "ordinal":
            raise ModelError(f"{name} has ordered classes with cuts between them, which no {classes}{head} has.")
        described["problem_type"] = PROBLEM_TYPES[spec.task]
    else:
        head = "ForMaskedLM" if not causal else "LMHeadModel" if model_type == "gpt2" else "ForCausalLM"
    return {**described, "architectures": [f"{classes}{head}"]}, tensors


PROBLEM_TYPES = {
    "classify": "single_label_classification",
    "multilabel": "multi_label_classification",
    "regression": "regression",
}


def refuse_windows(saved: Saved, name: str) -> None:
    if saved.head.long == "window":
        raise ModelError(
            f"{name} reads long texts in windows, which only Headstart does. Fine-tune with --long truncate."
        )


def _class_tensors(tensors: Mapping[str, Tensor], model_type: str, saved: Saved, name: str) -> Tensors:
    """The tensors under which the class head of transformers gives the logits of ours."""
    kind, ours = KINDS[model_type], weights(saved.model.head)
    weight, bias = ours["linear.weight"], ours.get("linear.bias", torch.zeros(1))  # without one: not asked for below
    classes, width = weight.shape
    rest = {key: t for key, t in tensors.items() if not key.startswith(kind.head["head.linear"])}
    same = torch.eye(width) * SMALL
    match model_type:
        case "gpt2":
            norm = "transformer.ln_f.bias"
            return {**rest, norm: rest[norm] + _carried(weight, bias, name), "score.weight": weight}
        case _ if saved.config.causal:
            if bool(bias.any()):
                raise ModelError(
                    f"{name}: its head has a bias, which {kind.classes}ForSequenceClassification has not. Use export --to onnx, or fine-tune with --set calibrate=false."
                )
            return {**rest, "score.weight": weight}
        case "bert":
            pooler = {"bert.pooler.dense.weight": same, "bert.pooler.dense.bias": torch.zeros(width)}
            return {**rest, **pooler, "classifier.weight": weight / SMALL, "classifier.bias": bias}
        case "distilbert":
            if 2 * classes > width:
                raise ModelError(
                    f"{name} has {classes} labels, more than half its width: no DistilBert head holds them."
                )
            both = torch.cat([weight, -weight, torch.zeros(width - 2 * classes, width)])
            apart = torch.cat([torch.eye(classes), -torch.eye(classes), torch.zeros(classes, width - 2 * classes)], 1)
            first = {"pre_classifier.weight": both, "pre_classifier.bias": torch.zeros(width)}
            return {**rest, **first, "classifier.weight": apart, "classifier.bias": bias}  # relu(x) - relu(-x) is x
        case _:
            dense = {"classifier.dense.weight": same, "classifier.dense.bias": torch.zeros(width)}
            return {**rest, **dense, "classifier.out_proj.weight": weight / SMALL, "classifier.out_proj.bias": bias}


def _carried(weight: Tensor, bias: Tensor, name: str) -> Tensor:
    """The smallest addition to what the head reads, (D,), that adds `bias` to its logits."""
    added = torch.linalg.lstsq(weight.double(), bias.double()[:, None]).solution[:, 0]
    if not torch.allclose(weight.double() @ added, bias.double(), atol=1e-6):
        raise ModelError(f"{name}: its labels depend on each other, so that no head without a bias gives the same.")
    return added.float()


def _write_tokenizer(folder: Path, saved: Saved) -> None:
    """tokenizer.json that puts the start and end tokens where the model has seen them."""
    own = saved.tokenizer
    tokenizer = Tokenizer.from_json(own.to_json())
    start, end = (str(own.backend.id_to_token(i)) for i in (own.start, own.end))
    after = [] if saved.config.causal else [end]
    before = [start]
    roles_in_it: list[Any] = [(start, own.start), (end, own.end)]
    if saved.head.prompt:  # its tokens stand around every text, which is cut to what they leave
        prompt = prompt_tokens(saved.head.prompt, own, saved.config.causal)
        normalize = tokenizer.backend.normalizer
        strip = [Strip(), *([Prepend(prompt.space)] if prompt.space else []), *([normalize] if normalize else [])]
        tokenizer.backend.normalizer = normalizers.Sequence(strip)
        before, after = (
            [part] if ids else [] for part, ids in (("<prompt>", prompt.before), ("</prompt>", prompt.after))
        )
        roles_in_it = [_several(own, "<prompt>", prompt.before), _several(own, "</prompt>", prompt.after)]
    pair = _pair_template(start, end, saved) if INPUTS[saved.head.reads].several else None
    tokenizer.backend.post_processor = TemplateProcessing(
        single=[*before, "$A", *after], pair=pair, special_tokens=roles_in_it
    )
    if saved.head.kind == "classify":
        tokenizer.backend.enable_truncation(saved.config.context)
    write_file(folder / "tokenizer.json", tokenizer.to_json().encode())
    typed = getattr(saved.config, "separator", None) is not None
    roles = {"pad_token": own.pad, "unk_token": own.unk, "mask_token": own.mask}
    roles |= {"bos_token": own.start, "eos_token": own.end}
    roles |= {} if saved.config.causal else {"cls_token": own.start, "sep_token": own.end}
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": saved.config.context,
            "padding_side": "right",
            "clean_up_tokenization_spaces": False,
            **({"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]} if typed else {}),
            "split_special_tokens": True,  # "<mask>" in a text is six characters, as it is here
            **{role: own.backend.id_to_token(i) for role, i in roles.items() if i is not None},
        },
    )


def _pair_template(start: str, end: str, saved: Saved) -> list[str]:
    """Both texts of a pair with the tokens around them, and the type of each."""
    second = 0 if getattr(saved.config, "separator", None) is None else 1
    last = [] if saved.config.causal else [f"{end}:{second}"]
    return [f"{start}:0", "$A:0", *[f"{end}:0"] * saved.model.base.separators, f"$B:{second}", *last]


def _several(tokenizer: Tokenizer, name: str, ids: Sequence[int]) -> Mapping[str, object]:
    """Tokens that stand around a text, as a template of the library has them."""
    return {"id": name, "ids": list(ids), "tokens": [tokenizer.backend.id_to_token(i) for i in ids]}


@torch.inference_mode()
def _difference(folder: Path, saved: Saved) -> float:
    """The largest difference of a logit between the model here and the folder opened by transformers."""
    try:
        import transformers
    except ImportError:
        raise UserError(
            "export checks what it wrote with transformers: pip install 'headstart[hf]'.", "NOT_INSTALLED"
        ) from None
    transformers.utils.logging.disable_progress_bar()  # it takes a moment
    described = json.loads((folder / "config.json").read_text("utf-8"))
    name = described["architectures"][0]
    if not hasattr(transformers, name):
        raise ModelError(f"transformers has no class {name}. Use export --to onnx.")
    theirs = getattr(transformers, name).from_pretrained(folder).eval()
    random, most = torch.Generator().manual_seed(0), min(saved.config.context, 64)
    special = (saved.tokenizer.pad, saved.tokenizer.start, saved.tokenizer.end)
    plain = torch.tensor([i for i in range(saved.tokenizer.size) if i not in special])
    rows = [plain[torch.randint(len(plain), (length,), generator=random)].tolist() for length in {1, most // 2, most}]
    given: dict[str, Tensor] = {}
    separator = getattr(saved.config, "separator", None)
    if INPUTS[saved.head.reads].several:
        rows = [[*row[: len(row) // 2], saved.tokenizer.end, *row[len(row) // 2 + 1 :]] for row in rows]
    ids, mask = pad(rows, saved.tokenizer.pad)
    if separator is not None:
        given["token_type_ids"] = token_types(ids, separator)
    ours, found = saved.model(ids, mask), theirs(input_ids=ids, attention_mask=mask.long(), **given).logits
    counted = mask if saved.head.by_token else slice(None)
    difference = float((ours[counted] - found[counted]).abs().max())
    if difference > ALLOWED:
        raise ModelError(f"The exported model gives other logits (by {difference:.2g}). Please report this.")
    return difference


def card(run: Run, saved: Saved, made: str) -> str:
    """The model card: what it is, what it was trained on, how it scored, and what was taken over."""
    result, data = run.read_json("result.json"), run.read_json("data.json")
    classifier, by_word = saved.head.kind == "classify", saved.head.target.by_word
    task = (
        "token-classification"
        if by_word
        else "text-classification"
        if classifier
        else "text-generation"
        if saved.config.causal
        else "fill-mask"
    )
    with complaints(run.path / "model"):
        readme = read_regular(run.path / "model" / "README.md").decode().strip()
    files = "\n".join(f"- {named(f['file'])}, SHA-256 {plain(f['sha256'])}" for f in data["files"])
    parts = [
        f"---\nlibrary_name: transformers\npipeline_tag: {task}\ntags: [headstart]\n---\n\n{readme}",
        f"It opens as `{made}` of transformers, with the logits it has in Headstart.",
        f"## Data\n\n{files}",
    ]
    if by_word:
        parts[1] += (
            " It was trained on words with one space between them, punctuation marks too, and tags the first token of each; give its "
            f'pipeline `aggregation_strategy="first"`. It reads {saved.config.context} tokens; Headstart reads longer texts in parts.'
        )
    elif classifier:
        parts[1] += (
            f" Give its pipeline `truncation=True`: longer texts are then cut to {saved.config.context} tokens, as in Headstart; "
            "without it, transformers does not cut, and fails on them.\n\n"
            f'```python\nfrom transformers import pipeline\n\nclassify = pipeline("{task}", "path/to/this/folder", truncation=True)\n```\n\n'
            "A dense layer in its head passes on what it gets, and was not trained: to train this model further, go "
            "back to the run."
        )
    if classifier:
        parts.append(f"## Scores\n\n{_scores(result)}")
        receipt = run.read_json("receipt.json")
        counts = ", ".join(f"{len(receipt[key])} {key}" for key in ("copied", "new", "frozen"))
        parts.append(
            f"## Receipt\n\nBase: {named(receipt['base'])} ({receipt['init']}). Tensors: {counts}. SHA-256 of the "
            f"base before training {receipt['base_sha256_before']}, after it {receipt['base_sha256_after']}."
        )
    return "\n\n".join(parts) + "\n"


def _scores(result: Mapping[str, Any]) -> str:
    if (task := result.get("task", "classify")) != "classify":
        parts = [(name, result[name]) for name in ("valid", "test") if result.get(name)]
        titles = {key: title for key, title in TARGETS[task].titles.items() if all(key in s for _, s in parts)}
        cells = "\n".join(
            f"| {name}, {s['rows']} | " + " | ".join(f"{s.get(key, 0):.4f}" for key in titles) + " |"
            for name, s in parts
        )
        return (
            f"| rows | {' | '.join(titles.values())} |\n{'|---' * (len(titles) + 1)}|\n{cells}"
            if parts
            else "No rows were held out to score it on."
        )
    lines = ["| rows | accuracy | 95 % interval | macro-F1 |\n|---|---|---|---|"]
    for name in ("valid", "test"):
        if scores := result.get(name):
            low, high = scores["interval"]
            lines.append(
                f"| {name}, {scores['rows']} | {scores['accuracy']:.4f} | {low:.4f} to {high:.4f} | {scores['macro_f1']:.4f} |"
            )
    if len(lines) == 1:
        return "No rows were held out to score it on."
    common = result["commonest"]
    return (
        "\n".join(lines)
        + f"\n\nThe majority class '{plain(common['label'])}' scores {common.get('test', common.get('valid')):.4f}."
    )


def _write_json(file: Path, value: Any) -> None:
    write_file(file, to_json(value, indent=2).encode())
