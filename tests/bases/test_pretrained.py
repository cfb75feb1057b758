"""A model made elsewhere is opened as data: the same numbers come out, and a broken or hostile one is refused."""

from __future__ import annotations

import json
import os
import pickle
import struct
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from headstart.bases.pretrained import find_base, into_ours, made_elsewhere, open_base, read_pretrained
from headstart.config import TokenizerConfig
from headstart.errors import ConfigError, ModelError, NetworkError, UserError
from headstart.models.transformer import Transformer
from headstart.runs.manifest import unverified
from headstart.runs.model_dir import build_base, describe_model, write_model
from headstart.schema import merge, parse, to_toml
from headstart.shapes import HuggingFaceConfig, usual_pool
from headstart.text.batch import pad
from headstart.text.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers")
TIGHT = {"atol": 1e-5, "rtol": 1e-4}
HEADS = {
    "bert": "BertForMaskedLM",
    "roberta": "RobertaForMaskedLM",
    "camembert": "CamembertForMaskedLM",
    "xlm-roberta": "XLMRobertaForMaskedLM",
    "mpnet": "MPNetForMaskedLM",
    "distilbert": "DistilBertForMaskedLM",
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
}
Make = Callable[..., tuple[Path, Any]]


@pytest.fixture
def make(tmp_path: Path, elsewhere: Any, sentences: Path) -> Make:
    """A folder as transformers writes it, and the model in it."""
    tokenizer = Tokenizer.train(sentences.read_text().splitlines(), TokenizerConfig(kind="word"))

    def made(model_type: str, cls: str | None = None, **settings: Any) -> tuple[Path, Any]:
        torch.manual_seed(0)
        shape = elsewhere(model_type, vocab_size=tokenizer.size, **settings)
        cls = cls or HEADS[model_type]
        config = getattr(transformers, cls).config_class(**shape.settings)
        model = getattr(transformers, cls)(config).eval()
        with torch.no_grad():  # away from where they begin, so that any slip shows
            for p in model.parameters():
                p.add_(0.1 * torch.randn_like(p))
        folder = tmp_path / f"{model_type}-{cls}"
        model.save_pretrained(folder)
        (folder / "tokenizer.json").write_text(tokenizer.to_json())
        return folder, model

    return made


@pytest.fixture
def bert(make: Make) -> Path:
    return make("bert")[0]


def change(folder: Path, **settings: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))


# --- what is right


@pytest.mark.parametrize("model_type", HEADS)
def test_the_same_logits_as_in_transformers(make: Make, model_type: str) -> None:
    folder, theirs = make(model_type)
    ours = open_base(str(folder))
    ids, mask = pad([[7, 8, 9, 10, 11], [4, 2, 3]], pad_id=1)
    expected = theirs(input_ids=ids, attention_mask=mask.long()).logits
    assert_close(ours.model(ids, mask)[mask], expected[mask], **TIGHT)
    assert ours.fresh == ()


def test_what_a_model_has_turned_off_stays_off(make: Make) -> None:
    folder, _ = make("mistral")
    change(folder, sliding_window=None)
    saved = open_base(str(folder))
    again = parse(HuggingFaceConfig, tomllib.loads(to_toml(saved.config)))
    assert build_base(again).inner.config.sliding_window is None
    assert describe_model(saved)["sliding_window"] is None


def test_a_token_that_has_the_padding_id_of_the_settings_is_read_as_any_other(make: Make) -> None:
    folder, theirs = make("roberta")
    ids = torch.tensor([[7, 1, 9, 1, 11]])
    expected = theirs(input_ids=ids, position_ids=torch.arange(2, 7)[None]).logits
    assert_close(open_base(str(folder)).model(ids, torch.ones_like(ids, dtype=torch.bool)), expected, **TIGHT)


def test_mpnet_counts_positions_from_the_padding_id_of_its_code(make: Make) -> None:
    folder, theirs = make("mpnet")
    change(folder, pad_token_id=5)
    ids, mask = pad([[7, 8, 9, 10, 11], [4, 2, 3]], pad_id=1)
    expected = theirs(input_ids=ids, attention_mask=mask.long()).logits
    assert_close(open_base(str(folder)).model(ids, mask)[mask], expected[mask], **TIGHT)


def test_mpnet_with_other_distances_is_refused(make: Make) -> None:
    folder, _ = make("mpnet")
    change(folder, relative_attention_num_buckets=16)
    with pytest.raises(ModelError, match="mpnet model with relative_attention_num_buckets = 16 is not supported"):
        open_base(str(folder))


@pytest.mark.parametrize(("model_type", "cls"), [("bert", "BertModel"), ("gpt2", "GPT2Model"), ("llama", "LlamaModel")])
def test_a_base_saved_without_a_head_is_whole(make: Make, model_type: str, cls: str) -> None:
    folder, theirs = make(model_type, cls)
    ours = open_base(str(folder))
    ids, mask = pad([[7, 8, 9, 10, 11]])
    assert_close(ours.model.base(ids, mask).last, theirs(input_ids=ids).last_hidden_state, **TIGHT)
    assert all(name.startswith("head.") for name in ours.fresh)
    assert bool(ours.fresh) == (model_type != "gpt2")  # its head is the embedding, and nothing else


@pytest.mark.parametrize("model_type", ["gpt2", "bert"])
def test_our_own_transformer_gives_the_same_logits_and_so_does_the_way_back(
    make: Make, model_type: str, tmp_path: Path
) -> None:
    folder, theirs = make(model_type)
    ours = into_ours(open_base(str(folder)))
    assert isinstance(ours.model.base, Transformer)
    ids, mask = pad([[7, 8, 9, 10, 11], [4, 2, 3]])
    expected = theirs(input_ids=ids, attention_mask=mask.long()).logits
    assert_close(ours.model(ids, mask)[mask], expected[mask], **TIGHT)
    write_model(tmp_path / "back", ours, "")
    back = type(theirs).from_pretrained(tmp_path / "back").eval()
    assert_close(back(input_ids=ids, attention_mask=mask.long()).logits[mask], expected[mask], **TIGHT)


def test_what_our_transformer_does_not_compute_is_refused(make: Make) -> None:
    unlike = [{"activation_function": "relu"}, {"scale_attn_weights": False}, {"scale_attn_by_inverse_layer_idx": True}]
    for model_type, settings in (("llama", {}), *(("gpt2", one) for one in unlike)):
        folder, _ = make(model_type, **settings)
        with pytest.raises((ModelError, ConfigError), match=r"Our transformer computes|does not compute"):
            into_ours(open_base(str(folder)))


def test_weights_in_several_files_are_put_together(bert: Path) -> None:
    whole = load_file(bert / "model.safetensors")
    names = sorted(whole)
    parts = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    before = open_base(str(bert)).model(*pad([[7, 8]]))
    for part, own in parts.items():
        save_file({name: whole[name] for name in own}, bert / part)
    index = {"weight_map": {name: part for part, own in parts.items() for name in own}}
    (bert / "model.safetensors.index.json").write_text(json.dumps(index))
    (bert / "model.safetensors").unlink()
    assert torch.equal(open_base(str(bert)).model(*pad([[7, 8]])), before)


def test_names_of_very_old_files_are_known(bert: Path) -> None:
    before = open_base(str(bert)).model(*pad([[7, 8]]))
    tensors = load_file(bert / "model.safetensors")
    old = {n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): t for n, t in tensors.items()}  # fmt: skip
    save_file(old, bert / "model.safetensors")
    assert torch.equal(open_base(str(bert)).model(*pad([[7, 8]])), before)


def test_half_precision_is_opened_to_single(bert: Path) -> None:
    save_file(
        {n: t.to(torch.bfloat16) for n, t in load_file(bert / "model.safetensors").items()}, bert / "model.safetensors"
    )
    assert {t.dtype for t in open_base(str(bert)).model.state_dict().values()} == {torch.float32}


def test_what_a_config_says_of_code_is_passed_over(bert: Path, tmp_path: Path) -> None:
    (bert / "modeling.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    before = open_base(str(bert)).model(*pad([[7, 8]]))
    code = {
        "auto_map": {"AutoModel": "modeling.Evil"},
        "trust_remote_code": True,
        "_attn_implementation": "evil/kernel",
    }
    change(bert, **code, attn_implementation="evil/kernel", quantization_config={"quant_method": "evil"}, what="ever")
    assert torch.equal(open_base(str(bert)).model(*pad([[7, 8]])), before)
    assert not (tmp_path / "ran").exists()


# --- what is wrong


def test_a_kind_that_is_not_on_the_list_is_refused_by_name(bert: Path) -> None:
    change(bert, model_type="berd")
    with pytest.raises(ModelError, match=r"models of the kind 'berd' are not supported. Did you mean 'bert'\?"):
        open_base(str(bert))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"is_decoder": True}, "with is_decoder = True is not supported"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type = relative_key"),
        ({"hidden_act": "evil"}, "the activation 'evil' is not supported"),
        ({"hidden_size": "wide"}, "its settings are not those of a bert model"),
        ({"num_hidden_layers": 3}, r"It has not bert.encoder.layer.2\S+, .* and 11 more"),
        ({"num_hidden_layers": 1}, r"It has too much: bert.encoder.layer.1\."),
        ({"num_hidden_layers": 10**9}, "layers: Input should be less than or equal to 1000"),
        ({"hidden_size": 32}, r"is \(16,\); the settings in config.json make it \(32,\)"),
        ({"vocab_size": 3}, "the tokenizer has [0-9]+ entries, the model 3"),
        ({"vocab_size": 10**11}, "the settings in config.json make it"),
        ({"num_hidden_layers": 0}, r"of a bert model \(the settings: layers: .* or equal to 1 \(got 0\)"),
        ({"max_position_embeddings": 1}, r"context: .* or equal to 2 \(got 1\)"),
        ({"vocab_size": 0}, r"vocab: .* or equal to 1 \(got 0\)"),
        ({"hidden_size": -16}, r"width: .* or equal to 1 \(got -16\)"),
        ({"num_attention_heads": 3}, "is not a multiple of the number of attention heads"),
    ],
)
def test_settings_that_do_not_fit_are_refused_before_memory_is_taken(bert: Path, settings: Any, says: str) -> None:
    change(bert, **settings)
    with pytest.raises(ModelError, match=says):
        open_base(str(bert))


@pytest.mark.parametrize(
    ("model_type", "settings"),
    [
        ("roberta", {"pad_token_id": None}),
        ("gpt2", {"activation_function": "evil"}),
        ("llama", {"hidden_act": "evil"}),
        ("llama", {"num_key_value_heads": 0}),
        ("llama", {"rope_parameters": {"rope_type": "evil", "rope_theta": 10000.0}}),
    ],
)
def test_settings_that_no_model_can_be_made_of_are_one_sentence(make: Make, model_type: str, settings: Any) -> None:
    folder, _ = make(model_type)
    change(folder, **settings)
    with pytest.raises(ModelError, match=f"its settings are not those of a {model_type} model"):
        open_base(str(folder))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model": {"layers": 900}}, "speak of 900 layers; it holds [0-9]+ tensors"),
        ({"model": {"settings": {"num_hidden_layers": 10**4}}}, "has 2 layers, its settings speak of 10000"),
        ({"model": {"settings": {"intermediate_size": 10**12}}}, r"do not fit the model: .* not \(1000000000000,"),
        ({"model": {"model_type": "evil"}}, r"not a model that Headstart wrote \('evil'\)"),
        ({"model": None}, "not a model that Headstart wrote"),
        ({"head": "classify", "labels": ["a"], "pool": "evil"}, r"not a model that Headstart wrote \('evil'\)"),
    ],
)
def test_a_folder_that_says_it_is_ours_is_held_against_its_weights_too(
    bert: Path, tmp_path: Path, changes: Any, says: str
) -> None:
    saved = open_base(str(bert))
    write_model(tmp_path / "ours", saved, "")
    (tmp_path / "ours" / "tokenizer.json").write_text(saved.tokenizer.to_json())
    assert torch.equal(open_base(str(tmp_path / "ours")).model(*pad([[7, 8]])), saved.model(*pad([[7, 8]])))
    described = merge(describe_model(saved), {"headstart": changes})
    (tmp_path / "ours" / "config.json").write_text(json.dumps(described))
    with pytest.raises(ModelError, match=says), unverified():
        open_base(str(tmp_path / "ours"))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("../x.safetensors", r"no part of this model: ../x.safetensors"),
        ("/etc/x.safetensors", "no part of this model"),
        ("part.bin", "no part of this model: part.bin"),
        ("part.safetensors", "part.safetensors missing"),
    ],
)
def test_an_index_names_only_files_beside_it(bert: Path, name: str, says: str) -> None:
    (bert / "model.safetensors").unlink()
    (bert / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": name}}))
    with pytest.raises(ModelError, match=says):
        open_base(str(bert))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        struct.pack("<Q", 2**63),
        struct.pack("<Q", 20) + b'{"x":{"dtype":"F32",',
        struct.pack("<Q", 61) + b'{"x":{"dtype":"F32","shape":[1000000],"data_offsets":[0,4000000]}}'[:61],
    ],
)
def test_damaged_weights_are_one_sentence(bert: Path, data: bytes) -> None:
    (bert / "model.safetensors").write_bytes(data)
    with pytest.raises(ModelError, match="is damaged"):
        open_base(str(bert))


class Evil:
    def __init__(self, place: str) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return os.mkdir, (self.place,)


def test_pickled_weights_are_opened_only_when_asked_and_never_run(bert: Path, tmp_path: Path) -> None:
    before = open_base(str(bert)).model(*pad([[7, 8]]))
    torch.save(load_file(bert / "model.safetensors"), bert / "pytorch_model.bin")
    (bert / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"only pickled weights \(pytorch_model.bin\).*--allow-pickle"):
        open_base(str(bert))
    assert torch.equal(open_base(str(bert), allow_pickle=True).model(*pad([[7, 8]])), before)
    (bert / "pytorch_model.bin").write_bytes(pickle.dumps({"x": Evil(str(tmp_path / "ran"))}))
    with pytest.raises(ModelError, match="does not hold plain weights"):
        open_base(str(bert), allow_pickle=True)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_file_that_is_missing_is_named(bert: Path, missing: str) -> None:
    (bert / missing).unlink()
    for allow_pickle in (False, True):
        with pytest.raises(ModelError, match=missing):
            read_pretrained(bert, allow_pickle)


def test_without_weights_of_any_kind_both_kinds_are_named(bert: Path) -> None:
    (bert / "model.safetensors").unlink()
    for allow_pickle in (False, True):
        with pytest.raises(ModelError, match=r"neither model\.safetensors nor, for --allow-pickle, pytorch_model\.bin"):
            read_pretrained(bert, allow_pickle)


def test_a_sentencepiece_file_does_not_stand_in_for_the_tokenizer_of_a_model(make: Make) -> None:
    folder, _ = make("xlm-roberta")
    (folder / "tokenizer.json").rename(folder / "sentencepiece.bpe.model")
    with pytest.raises(ModelError, match=r"tokenizer\.json is missing\. AutoTokenizer of transformers"):
        open_base(str(folder))


def test_a_folder_with_a_gguf_file_was_made_elsewhere(tmp_path: Path) -> None:
    assert not made_elsewhere(str(tmp_path))
    (tmp_path / "model.gguf").touch()
    assert made_elsewhere(str(tmp_path))


def test_a_name_of_the_hub_without_a_network_is_one_sentence() -> None:
    with pytest.raises(NetworkError, match=r"hf:owner/model could not be downloaded: .*HF_TOKEN; a folder with"):
        find_base("hf:owner/model")
    with pytest.raises(UserError, match="is not hf:NAME"):
        find_base("hf:../../etc")


def test_a_base_that_is_nothing_is_told_what_there_could_be() -> None:
    with pytest.raises(ConfigError, match=r"'minilmm' is neither a run, .* Did you mean 'minilm'\? .*hf:NAME"):
        find_base("minilmm")


def name_pooling(folder: Path, modes: Any, where: str = "1_Pooling") -> None:
    """What sentence-transformers writes beside a model."""
    kinds = {"": "Transformer", where: "Pooling", "2_Normalize": "Normalize"}
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))


@pytest.mark.parametrize(
    ("modes", "pool"),
    [
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_lasttoken": True}, "last"),
        ({"pooling_mode": "mean"}, "mean"),
        ({"pooling_mode": "lasttoken"}, "last"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, None),  # both beside each other
        ({"pooling_mode_max_tokens": True}, None),
    ],
)
def test_a_sentence_encoder_brings_its_own_pooling(make: Make, modes: dict[str, Any], pool: str | None) -> None:
    folder, _ = make("bert", "BertModel")
    name_pooling(folder, modes)
    shape = read_pretrained(folder).config
    assert shape.pool == pool
    assert usual_pool(shape) == (pool or "cls")


def test_the_pooling_of_a_plain_encoder_or_decoder_follows_from_its_kind(make: Make) -> None:
    assert [usual_pool(read_pretrained(make(kind)[0]).config) for kind in ("bert", "gpt2")] == ["cls", "last"]


def test_nothing_outside_the_folder_is_read_for_its_pooling(make: Make) -> None:
    folder, _ = make("bert", "BertModel")
    name_pooling(folder, {"pooling_mode_mean_tokens": True}, where="../1_Pooling")
    (folder.parent / "1_Pooling").mkdir()
    (folder.parent / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    assert read_pretrained(folder).config.pool is None


@pytest.mark.parametrize("modes", [[], "mean", None, {"pooling_mode": ["mean"]}])
def test_a_damaged_pooling_is_refused_or_passed_over(make: Make, modes: Any) -> None:
    folder, _ = make("bert", "BertModel")
    name_pooling(folder, modes)
    if isinstance(modes, dict):
        assert read_pretrained(folder).config.pool is None
    else:
        with pytest.raises(ModelError, match=r"modules\.json or the pooling that it names is damaged"):
            read_pretrained(folder)


def test_a_base_of_many_empty_tensors_is_refused_before_its_layers_are_made(bert: Path) -> None:
    change(bert, num_hidden_layers=900)
    save_file({f"bert.encoder.layer.{i}.x": torch.zeros(0) for i in range(20_000)}, bert / "model.safetensors")
    with pytest.raises(ModelError, match=r"model\.safetensors: 20,000 tensors, where a model has 3,000 at most"):
        read_pretrained(bert)
