"""Exports are loaded by `datasets`, rendered by chat templates, and trained on by TRL.

Needs none of the project's own code: ``make test-datasets`` writes the exports and runs this where the libraries are.
"""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(os.environ.get("DATASETS_MADE", "nowhere"))
LINES = {"openai": 13, "openai-dpo": 12, "trl": 12, "trl-dpo": 12, "trajectory": 13}

datasets = pytest.importorskip("datasets", reason="datasets is not installed: make test-datasets")
if not FOLDER.is_dir():
    pytest.skip("there are no exports to read: make test-datasets", allow_module_level=True)

TEMPLATE = """{%- if tools %}<tools>{{ tools | tojson }}</tools>
{%- endif %}
{%- for message in messages %}
<{{ message.role }}>{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}<call>{{ call.function.name }}
{%- for name, value in call.function.arguments.items() %} {{ name }}={{ value }}{% endfor %}</call>
{%- endfor %}</{{ message.role }}>
{%- endfor %}
{%- if add_generation_prompt %}<assistant>{% endif %}"""


def loaded(form: str) -> Any:
    return datasets.load_dataset("json", data_files=str(FOLDER / f"{form}.jsonl"), split="train")


@pytest.mark.parametrize("form", LINES)
def test_every_format_is_loaded_whole(form: str) -> None:
    assert len(loaded(form)) == LINES[form]


def test_a_content_that_is_now_text_now_parts_is_loaded() -> None:
    contents = [row["messages"][0]["content"] for row in loaded("openai")]
    text = json.dumps(contents)
    assert "What is this?" in text and "image_url" in text and "You are terse." in text


def test_a_table_has_the_same_rows() -> None:
    table = datasets.load_dataset("parquet", data_files=str(FOLDER / "parquet.parquet"), split="train")
    assert len(table) == 13
    calls = [call for row in table for message in row["messages"] for call in message["tool_calls"] or ()]
    assert len(calls) == 13 and json.loads(calls[0]["arguments"]) == {"city": "Rome"}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: make test-datasets")
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed: make test-datasets")
    whole = "".join((FOLDER / f"{form}.jsonl").read_text() for form in LINES) + TEMPLATE
    words = {char: place for place, char in enumerate(["<pad>", "<eos>", "<unk>", *sorted(set(whole))])}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("."), "isolated")
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=model, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", chat_template=TEMPLATE
    )


@pytest.fixture(scope="module")
def trl() -> Any:
    pytest.importorskip("torch", reason="torch is not installed: make test-datasets")
    return pytest.importorskip("trl", reason="trl is not installed: make test-datasets")


def test_arguments_as_objects_are_rendered_by_a_template(trl: Any, tokenizer: Any) -> None:
    row = loaded("trl")[0]
    text = trl.apply_chat_template(row, tokenizer, tools=row["tools"])["text"]
    assert "<call>weather city=Rome</call>" in text and "<tool>sunny, 31 degrees</tool>" in text
    assert "<assistant>Sunny, on day" in text
    pair = loaded("trl-dpo")[0]
    told = trl.apply_chat_template(pair, tokenizer, tools=pair["tools"])
    assert told["chosen"].startswith("Sunny, on day") and told["rejected"].startswith("It is sunny in Rome.")


@pytest.fixture
def model(tokenizer: Any) -> Any:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: make test-datasets")
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=2048, pad_token_id=0, eos_token_id=1, bos_token_id=1,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def test_supervised_training_takes_the_lines(trl: Any, tokenizer: Any, model: Any, tmp_path: Path) -> None:
    settings = trl.SFTConfig(
        output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=2, report_to=[], use_cpu=True, bf16=False,
        save_strategy="no", max_length=1024,
    )  # fmt: skip
    trainer = trl.SFTTrainer(model, settings, train_dataset=loaded("trl"), processing_class=tokenizer)
    assert trainer.train().training_loss > 0


def test_preference_training_takes_the_pairs(trl: Any, tokenizer: Any, model: Any, tmp_path: Path) -> None:
    settings = trl.DPOConfig(
        output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=2, report_to=[], use_cpu=True, bf16=False,
        save_strategy="no", max_length=1024,
    )  # fmt: skip
    before = copy.deepcopy(model)
    trainer = trl.DPOTrainer(model, before, settings, train_dataset=loaded("trl-dpo"), processing_class=tokenizer)
    assert trainer.train().training_loss > 0
