"""What is printed after a run, one function for each kind of run, and what a run would cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headstart.cli.terminal import accuracy_line, show, show_json, show_table
from headstart.errors import UserError
from headstart.quantities import counted, data_size, duration

if TYPE_CHECKING:
    from headstart.task import Task

PARTS = {"valid": "validation", "test": "test"}


def show_pretrained(result: Mapping[str, Any], config: Any) -> None:
    valid, trained, beside = result["valid"], result["train"], result["beside"]
    rate = f"{result['tokens_per_second']:,.0f} tokens/s"
    show(f"{result['run']}: {counted(result['steps'], 'step')}, {rate}, {duration(result['seconds'])}")
    if config.teacher:
        near = f"; mean cosine with its vectors of the validation text {valid['similarity']:.3f}" if valid else ""
        show(f"distilled from {config.teacher}{near}")
        return
    if valid:
        show(f"validation loss {valid['loss']:.4f} nats per token (perplexity {perplexity(valid)})")
    if beside:
        untrained = f"the same model before its first step {beside['untrained']:.3f} bits per byte"
        show(f"beside it: {untrained}, xz {beside['xz']:.3f}")
    floor = f"; no model can be below {trained['entropy']:.4f}, the text's own entropy" if "entropy" in trained else ""
    show(f"training loss {trained['loss']:.4f}{floor}")


def perplexity(scores: Mapping[str, Any]) -> str:
    bits = f", {scores['bits_per_byte']:.3f} bits per byte" if scores["bits_per_byte"] else ""
    return f"{scores['perplexity']:.2f}{bits}"


def show_finetuned(result: Mapping[str, Any], config: Any) -> None:
    valid, test, common = result["valid"], result["test"], result["commonest"]
    part = f"{result['trained_parameters']:,} of {result['parameters']:,} parameters trained"
    show(f"{result['run']}: {part}, {duration(result['seconds'])}")
    if config.objective == "contrastive":
        show("contrastive: trained on pairs of texts; the head is a logistic regression on the embeddings")
    task = result.get("task", "classify")
    if valid and task != "classify":
        show(f"validation {task_scores(task, valid)}, loss {valid['loss']:.4f} (step {result['best_step']})")
    elif valid:
        show(f"validation accuracy {valid['accuracy']:.4f}, loss {valid['loss']:.4f} (step {result['best_step']})")
    if valid and result["best_step"] == 0:
        show("! training did not improve the validation score: these are the initial weights")
    if test and task != "classify":
        show(f"test {task_scores(task, test)}, {test['rows']} rows")
    elif test:
        show(accuracy_line("test accuracy", test) + f", macro-F1 {test['macro_f1']:.4f}")
    if (found := result.get("calibration")) and found["temperature"] is not None:
        errors = found["test"] or found["valid"]
        change = f"{errors['ece_before']:.4f} to {errors['ece_after']:.4f} on the {'test' if found['test'] else 'validation'} rows"
        show(f"temperature {found['temperature']:.3f}: expected calibration error from {change}")
    if told := ", ".join(f"{name} {common[name]:.4f}" for name in PARTS if name in common):
        constant = f"majority class '{common['label']}'" if task == "classify" else f"always '{common['label']}'"
        show(f"{constant}: {told}")
    if result["overlapping_test_rows"]:
        rest = test["without_overlap"]
        show(f"! {result['overlapping_test_rows']} of the {test['rows']} test rows also appear among the training rows")
        without = accuracy_line("without them", rest) if rest and task == "classify" else ""
        without = without or (f"without them: {task_scores(task, rest)}" if rest else "without them, there are none")
        show(f"  {without}")
    _show_curves(result)


def task_scores(task: Task, scores: Mapping[str, Any]) -> str:
    """The scores of a task in one line."""
    from headstart.targets.tasks import TARGETS  # loads numpy

    return ", ".join(f"{title} {scores[key]:.4f}" for key, title in TARGETS[task].titles.items() if key in scores)


def _show_curves(result: Mapping[str, Any]) -> None:
    file = Path(result["run"]) / "curves.png"
    if file.exists():  # a few evaluations make no curve
        show(f"learning curves: {file}")


def show_translated(result: Mapping[str, Any], config: Any) -> None:
    shape = f"{result['kind']}, hidden size {result['hidden']}, {result['parameters']:,} parameters"
    show(f"{result['run']}: {shape}, {counted(result['steps'], 'step')}, {duration(result['seconds'])}")
    for name, part in PARTS.items():
        if result[name]:
            show()
            show_translation_scores(part, result[name])
            if learned := result["overlapping"][name]:
                show(
                    f"! {counted(learned, f'{part} pair', 'has', 'have')} a source that is also in the training pairs."
                )
    show()
    for source, translation in result["samples"].items():
        show(f"{source} -> {translation}")


def show_translation_scores(part: str, scores: Mapping[str, Any]) -> None:
    named = {
        "loss (nats per target token)": {"value": scores["loss"], "interval": scores["loss_interval"]},
        "exact match": scores["exact_match"],
        "character error rate": scores["character_error_rate"],
        "token error rate": scores["token_error_rate"],
        f"BLEU{' (of characters)' * ('tok:char' in scores['bleu']['signature'])}": scores["bleu"],
        "chrF": scores["chrf"],
    }
    intervals = {name: score["interval"] for name, score in named.items()}
    told = {name: "{:.4f} to {:.4f}".format(*found) if found else "not known" for name, found in intervals.items()}
    rows = [[name, f"{score['value']:.4f}", told[name]] for name, score in named.items()]
    title = f"{part}, {scores['rows']} sources" if part else f"{scores['rows']} sources"
    show_table([title, "", "95 % interval"], rows, right=(1,))


def show_matched(result: Mapping[str, Any], config: Any) -> None:
    towers = f"{Path(result['text']).name} and {Path(result['image']).name}"
    part = f"{result['trained_parameters']:,} of {result['parameters']:,} parameters trained"
    length = f"{counted(result['steps'], 'step')}, {duration(result['seconds'])}"
    show(f"{result['run']}: {towers}, {part}, {length}")
    for name, named in PARTS.items():
        if result[name]:
            show()
            show_recalls(named, result[name])


def show_recalls(part: str, scores: Mapping[str, Any]) -> None:
    counts = f"{counted(scores['captions'], 'caption')}, {counted(scores['images'], 'image')}"
    ways = {"text_to_image": "caption to image", "image_to_text": "image to caption"}
    rows = [
        [name, k, f"{score['value']:.4f}", "{:.4f} to {:.4f}".format(*score["interval"]), f"{chance[k]:.4f}"]
        for way, name in ways.items()
        for chance in [scores["chance"][way]]
        for k, score in scores[way].items()
        if chance[k] < 1
    ]
    show_table([f"{part}, {counts}" if part else counts, "", "", "95 % interval", "chance"], rows, right=(2, 4))
    show_too_few(scores["chance"]["text_to_image"])


def show_too_few(chance: dict[str, float]) -> None:
    """Recall that guessing reaches says nothing of a model."""
    sure = [k for k, by_chance in chance.items() if by_chance == 1]
    if sure:
        show(f"! Too few images to judge by: {' and '.join(sure)} would be 1 by guessing.")


SUMMARIES: dict[str, Callable[[dict[str, Any], Any], None]] = {
    "pretrain": show_pretrained,
    "finetune": show_finetuned,
    "translate": show_translated,
    "match": show_matched,
}


def show_estimate(config: Any, resume: bool, as_json: bool) -> None:
    """What a run with these settings would cost."""
    if resume:
        raise UserError("--dry-run estimates a whole run. Leave out --resume.")
    from headstart.jobs.estimate import estimate

    cost = estimate(config)
    if as_json:
        show_json(cost)
        return
    frozen = cost["parameters"] - cost["trained_parameters"]
    based = f"from {counted(cost['timed_updates'], 'step')} timed here with {counted(cost['threads'], 'thread')}"
    step, evaluation = f"{1000 * cost['update_seconds']:.0f} ms", duration(cost["evaluation_seconds"])
    rows = [
        ["parameters", f"{cost['parameters']:,}" + (f", {frozen:,} of them frozen" if frozen else "")],
        ["training text", f"{cost['training_tokens']:,} tokens in {cost['texts']:,} texts; vocabulary {cost['vocabulary']:,}"],
        ["steps", f"{cost['steps']:,}: {cost['tokens']:,} tokens, {cost['epochs']:g} times through the text"],
        ["time", f"{duration(cost['seconds'])}, and {duration(cost['preparing_seconds'])} to prepare; {based}"],
        ["", f"{step} per step, {evaluation} for each of {cost['evaluations']} evaluations"],
        ["memory", f"{data_size(cost['memory_bytes'])} at its peak"],
        ["disk", f"{data_size(cost['disk_bytes'])} while it runs, {data_size(cost['disk_bytes_after'])} afterwards"],
    ]  # fmt: skip
    show_table(["", "about"], rows)
