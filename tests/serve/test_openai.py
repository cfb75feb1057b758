"""OpenAI's routes give the numbers of `headstart generate` and `headstart inspect`."""

from __future__ import annotations

import json
import math

import pytest
from starlette.testclient import TestClient

from headstart.models.decode import Sampling
from headstart.serve.app import make_app  # noqa: F401 (the extra is there)
from headstart.text.batch import pad
from headstart.use.inspect import Inspector
from headstart.use.language import LoadedLanguageModel

PROMPT = "the soup was"


@pytest.fixture(scope="session")
def model(made):
    return LoadedLanguageModel.load(made / "base")


def complete(client: TestClient, **asked):
    answer = client.post("/v1/completions", json={"prompt": PROMPT, **asked})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_models_are_listed_by_id_with_those_of_a_study_last(shared: TestClient, ids: dict[str, str]) -> None:
    found = shared.get("/v1/models").json()["data"]
    assert {ids["base"], ids["tuned"]} == {model["id"] for model in found[:2]}
    assert found[-1]["name"].startswith("study/cells/full")
    assert shared.get(f"/v1/models/{ids['base']}").json()["kind"] == "pretrain"
    assert shared.get("/v1/models/none-of-these").status_code == 404


def test_a_greedy_completion_is_that_of_generate(shared: TestClient, ids: dict[str, str], model) -> None:
    ours = model.generate(PROMPT, 8, Sampling(), 3)
    answer = complete(shared, model=ids["base"], max_tokens=8, temperature=0, logprobs=3)
    choice = answer["choices"][0]
    assert PROMPT + choice["text"] == ours["text"]
    told = [token for token in ours["tokens"] if token["id"] != model.saved.tokenizer.end]
    assert choice["logprobs"]["tokens"] == [token["token"] for token in told]
    for value, token in zip(choice["logprobs"]["token_logprobs"], told, strict=True):
        assert math.exp(value) == pytest.approx(token["probability"], abs=1e-5)
    for top, token in zip(choice["logprobs"]["top_logprobs"], told, strict=True):
        assert list(top) == [guess["token"] for guess in token["top"]]
    assert answer["usage"]["completion_tokens"] == len(told)
    assert choice["finish_reason"] == ("stop" if len(told) < 8 else "length")


def test_echo_scores_the_prompt_as_inspect_does(shared: TestClient, ids: dict[str, str], made) -> None:
    text = "the soup was lovely"
    answer = complete(shared, model=ids["base"], prompt=text, max_tokens=0, echo=True, logprobs=1)
    told = answer["choices"][0]["logprobs"]
    seen = Inspector.load(made / "base").inspect(text, ["probabilities"])["probabilities"].data()["tokens"]
    seen = [place for place in seen if place["token"]]
    assert answer["choices"][0]["text"] == text
    assert told["token_logprobs"][0] is None
    assert told["top_logprobs"][0] is None
    assert len(told["tokens"]) == answer["usage"]["prompt_tokens"] == len(seen)
    for value, place in zip(told["token_logprobs"][1:], seen[1:], strict=True):
        assert math.exp(value) == pytest.approx(place["probability"], abs=1e-5)


def test_the_requests_of_lm_eval_get_one_token_more_than_the_prompt_has(
    shared: TestClient, ids: dict[str, str], model
) -> None:
    """It sends ids and asks for one new token, whose score it drops: also where that is the end token."""
    told = shared.post("/tokenize", json={"prompt": "the soup was", "add_special_tokens": False}).json()["tokens"]
    start = shared.get("/tokenizer_info").json()["bos_token_id"]
    whole = model.saved.tokenizer.encode(["the soup was lovely"], end=False)[0].tolist()
    assert [start, *told] == whole[: len(told) + 1]
    prompts = [whole, whole[:-1]]  # after the first, the text ends
    asked = {"model": ids["base"], "prompt": prompts, "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True}  # fmt: skip
    choices = complete(shared, **asked)["choices"]
    assert [choice["finish_reason"] for choice in choices] == ["stop", "length"]
    for choice, row in zip(choices, prompts, strict=True):
        scores, top = choice["logprobs"]["token_logprobs"], choice["logprobs"]["top_logprobs"]
        assert len(scores) == len(top) == len(row) + 1
        expected = model.saved.model(*pad([row])).log_softmax(-1)[0].detach()
        for place in range(1, len(row)):
            assert scores[place] == pytest.approx(float(expected[place - 1, row[place]]), abs=1e-4)
            assert max(top[place].values()) >= scores[place]


def test_text_offsets_count_from_the_start_of_the_prompt(shared: TestClient, ids: dict[str, str]) -> None:
    answer = complete(shared, model=ids["base"], max_tokens=3, temperature=0, echo=True, logprobs=0)
    told, text = answer["choices"][0]["logprobs"], answer["choices"][0]["text"]
    assert told["text_offset"] == sorted(told["text_offset"])
    assert told["tokens"].pop() == "</s>"  # has no text
    for token, place in list(zip(told["tokens"], told["text_offset"], strict=False))[1:]:
        assert text[place:].lstrip().startswith(token.strip())


def test_a_prompt_may_be_ids_or_several(shared: TestClient, ids: dict[str, str], model) -> None:
    row = model.saved.tokenizer.encode([PROMPT], end=False)[0].tolist()
    by_text = complete(shared, model=ids["base"], max_tokens=5, temperature=0)
    by_ids = complete(shared, model=ids["base"], prompt=row, max_tokens=5, temperature=0)
    several = complete(shared, model=ids["base"], prompt=[PROMPT, "the fish was"], max_tokens=5, temperature=0, n=2)
    assert by_text["choices"][0]["text"] == by_ids["choices"][0]["text"]
    assert [choice["index"] for choice in several["choices"]] == [0, 1, 2, 3]
    assert several["choices"][0]["text"] == several["choices"][1]["text"] == by_text["choices"][0]["text"]


def test_a_seed_repeats_a_sample(shared: TestClient, ids: dict[str, str]) -> None:
    several = [
        complete(shared, model=ids["base"], max_tokens=8, seed=seed)["choices"][0]["text"] for seed in (1, 1, 2, 3, 4)
    ]
    assert several[0] == several[1]
    assert len(set(several)) > 1


def test_a_stop_word_ends_the_text_before_it(shared: TestClient, ids: dict[str, str]) -> None:
    whole = complete(shared, model=ids["base"], prompt="the", max_tokens=6, temperature=0)["choices"][0]["text"]
    word = whole.split()[1]
    cut = complete(shared, model=ids["base"], prompt="the", max_tokens=6, temperature=0, stop=[word])["choices"][0]
    assert cut["text"] == whole[: whole.index(word)]
    assert cut["finish_reason"] == "stop"


@pytest.mark.parametrize("echo", [False, True])
def test_a_stream_is_the_whole_in_parts(shared: TestClient, ids: dict[str, str], echo: bool) -> None:
    asked = {"prompt": PROMPT, "model": ids["base"], "max_tokens": 8, "temperature": 0, "logprobs": 2, "echo": echo}
    whole = complete(shared, **asked)["choices"][0]
    answer = shared.post("/v1/completions", json={**asked, "stream": True, "stream_options": {"include_usage": True}})
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    parts = [json.loads(line) for line in lines]
    before = len(model_row(shared, ids)) + 1 if echo else 0  # with echo, the end token stands there too
    assert parts.pop()["usage"]["completion_tokens"] == len(whole["logprobs"]["tokens"]) - before
    assert "".join(part["choices"][0]["text"] for part in parts) == whole["text"]
    tokens = [token for part in parts for token in part["choices"][0]["logprobs"]["tokens"]]
    assert tokens == whole["logprobs"]["tokens"]
    assert [part["choices"][0]["finish_reason"] for part in parts][-1] == whole["finish_reason"]


def model_row(client: TestClient, ids: dict[str, str]) -> list[int]:
    return client.post("/tokenize", json={"prompt": PROMPT, "model": ids["base"]}).json()["tokens"]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"prompt": "the " * 40}, "CONFIG"), ({"prompt": [10_000]}, "DATA_TOKENS"), ({"max_tokens": 1025}, "REQUEST"), ({"max_tokens": "5"}, "REQUEST"),
        ({"n": 5}, "REQUEST"), ({"logprobs": 21}, "REQUEST"), ({"temperature": -1}, "REQUEST"), ({"max_tokens": True}, "REQUEST"), ({"prompt": []}, "REQUEST"),
        ({"unknown": 1}, "REQUEST"), ({"model": "no-such"}, "RUN_MISSING"),
    ],
)  # fmt: skip
def test_what_the_caller_can_mend_is_told_with_a_4xx(shared: TestClient, ids: dict[str, str], asked, code: str) -> None:
    answer = shared.post("/v1/completions", json={"prompt": PROMPT, "model": ids["base"], **asked})
    assert 400 <= answer.status_code < 500
    assert answer.json()["error"]["code"] == code


def test_a_classifier_is_not_continued_but_told_what_to_do(shared: TestClient, ids: dict[str, str]) -> None:
    answer = shared.post("/v1/completions", json={"prompt": PROMPT, "model": ids["tuned"]})
    assert answer.status_code == 422
    assert (
        answer.json()["error"]["message"]
        == "tuned holds a classifier (for headstart predict), not a language model. Train one: headstart pretrain."
    )


@pytest.mark.parametrize("name", ["base", "tuned"])
def test_embeddings_have_length_one_and_base64_holds_the_same(
    shared: TestClient, ids: dict[str, str], name: str
) -> None:
    import base64
    import struct

    asked = {"model": ids[name], "input": ["the soup was cold", "the fish was fresh"]}
    floats = [row["embedding"] for row in shared.post("/v1/embeddings", json=asked).json()["data"]]
    packed = shared.post("/v1/embeddings", json={**asked, "encoding_format": "base64"}).json()["data"]
    for row, other in zip(floats, packed, strict=True):
        assert sum(x * x for x in row) == pytest.approx(1, abs=1e-5)
        assert struct.unpack(f"<{len(row)}f", base64.b64decode(other["embedding"])) == pytest.approx(row, abs=1e-6)
    assert shared.post("/embed", json={"inputs": asked["input"], "model": ids[name]}).json()[0] == pytest.approx(
        floats[0], abs=1e-6
    )
