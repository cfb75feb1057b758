"""lm-evaluation-harness asks the server; its log-likelihoods are those of the model for the ids that it sends, which have no start token. Needs the extra `harness`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from headstart.text.batch import pad
from headstart.use.language import LoadedLanguageModel
from tests.serve.conftest import TEXTS, Server

ENDINGS = [" lovely", " fresh", " awful", " cold"]


@pytest.mark.slow
def test_the_log_likelihoods_of_lm_eval_are_those_of_the_model(
    made: Path, start: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lm_eval")
    from lm_eval import evaluator
    from lm_eval.tasks import TaskManager

    rows = [
        {"context": text.rpartition(" ")[0], "endings": ENDINGS, "gold": ENDINGS.index(f" {text.split()[-1]}")}
        for text in TEXTS
    ]
    (tmp_path / "rows.json").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "dishes.yaml").write_text(
        "task: dishes\ndataset_path: json\ndataset_kwargs:\n  data_files:\n    test: "
        f"{tmp_path / 'rows.json'}\ntest_split: test\noutput_type: multiple_choice\ndoc_to_text: context\n"
        "doc_to_choice: '{{endings}}'\ndoc_to_target: gold\ntarget_delimiter: ''\nmetric_list:\n  - metric: acc\n"
    )
    _, http = start(made)
    token = http.headers["authorization"].split()[1]
    monkeypatch.setenv("OPENAI_API_KEY", token)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    http.get("/tokenizer_info")  # loads the model: lm-eval waits for five seconds only
    found = evaluator.simple_evaluate(
        model="local-completions",
        model_args={"model": "base", "base_url": f"{http.base_url}v1/completions", "auth_token": token, "max_length": 32},
        tasks=["dishes"],
        task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False),
        bootstrap_iters=0,
    )  # fmt: skip
    samples = found["samples"]["dishes"]
    assert len(samples) == len(TEXTS)
    loaded = LoadedLanguageModel.load(made / "base")
    for sample in samples:
        for ending, answer in zip(ENDINGS, sample["filtered_resps"], strict=True):
            whole = loaded.saved.tokenizer.encode([sample["doc"]["context"] + ending], False, end=False)[0].tolist()
            with torch.inference_mode():
                scores = loaded.saved.model(*pad([whole])).log_softmax(-1)[0]
            assert answer[0] == pytest.approx(float(scores[len(whole) - 2, whole[-1]]), abs=1e-4)
