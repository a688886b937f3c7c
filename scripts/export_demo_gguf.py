"""Write the embedded demo model as a GGUF file, so that llama-server, Ollama and others of that family can serve it.

    pip install gguf
    python scripts/export_demo_gguf.py demo-model.gguf
    llama-server -m demo-model.gguf -c 4096

The file holds the weights as 32-bit floats (3 MB), so that a server computes with the very numbers that the demo model
has; its tokenizer, with `<think>`, `<tool_call>` and the like as tokens; and its chat template.

Beside it goes the folder `demo-model-tokenizer`, the same tokenizer as a trainer reads it.

The file must be called `demo-model.gguf`, and a server must serve it as `demo-model`: by that name `foretrace build`
knows its traces, which are never training data.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from foretrace.models.demo_model import CHECKPOINT, write_demo_model
from foretrace.models.demo_model.network import read_weights
from foretrace.models.demo_model.tokenizer import END, SPECIAL, START
from foretrace.models.servers.demo import NAME

TEMPLATE = (
    "{% for message in messages %}"
    f"{START}{{{{ message['role'] }}}}\n{{{{ message['content'] }}}}{END}\n"
    "{% endfor %}"
    f"{{% if add_generation_prompt %}}{START}assistant\n{{% endif %}}"
)
"""The same text that `models.demo_model.tokenizer.ChatTokenizer.render` makes."""
FILE = f"{NAME}.gguf"
"""What the file is called: a server names the model by it, and `build` knows the traces by that name."""
DESCRIPTION = "The demo model of foretrace: it has ten problems by heart. What it writes is never training data."


def main() -> None:
    """Write the file that the command line names."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        raise SystemExit(f"usage: python scripts/export_demo_gguf.py {FILE}")
    if Path(sys.argv[1]).name != FILE:
        raise SystemExit(f"{sys.argv[1]}: call it {FILE}: by this name `foretrace build` knows and refuses its traces")
    target = Path(sys.argv[1])
    try:
        export(target)
        tokenizer = write_demo_model(target.with_name(f"{NAME}-tokenizer"))
        print(f"{target}; its tokenizer, for trainers: {tokenizer}")
    except ModuleNotFoundError as error:
        raise SystemExit(f"{error.name} is not installed: pip install {error.name}") from None
    except OSError as error:
        raise SystemExit(f"cannot write {sys.argv[1]}: {error.strerror}") from None


def export(target: Path) -> None:
    """Write the demo model as one GGUF file, replacing one that is there.

    Raises:
        ModuleNotFoundError: the package `gguf` is not installed.
    """
    import gguf

    config = json.loads((CHECKPOINT / "config.json").read_bytes())
    writer = gguf.GGUFWriter(str(target), gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH.QWEN3])
    writer.add_name(NAME)
    writer.add_description(DESCRIPTION)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    _add_shape(writer, config)
    _add_tokens(writer, json.loads((CHECKPOINT / "tokenizer.json").read_text(encoding="utf-8")), config)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, config["num_hidden_layers"])
    for name, tensor in read_weights((CHECKPOINT / "model.safetensors").read_bytes()).items():
        mapped = names.get_name(name, try_suffixes=(".weight",))
        if mapped is None:
            raise ValueError(f"GGUF has no name for the tensor {name}")
        writer.add_tensor(mapped, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_shape(writer: Any, config: dict[str, Any]) -> None:
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])


def _add_tokens(writer: Any, tokenizer: dict[str, Any], config: dict[str, Any]) -> None:
    """The byte-level BPE, which cuts words as GPT-2's does."""
    import gguf

    size = config["vocab_size"]
    ids: dict[str, int] = dict(tokenizer["model"]["vocab"])
    kinds = [gguf.TokenType.NORMAL] * size
    for token in tokenizer["added_tokens"]:
        ids[token["content"]] = token["id"]
        kinds[token["id"]] = gguf.TokenType.CONTROL if token["special"] else gguf.TokenType.USER_DEFINED
    names = {number: name for name, number in ids.items()}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([names[number] for number in range(size)])
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(ids[SPECIAL[0]])
    writer.add_add_bos_token(False)
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_pad_token_id(ids[SPECIAL[0]])
    writer.add_chat_template(TEMPLATE)


if __name__ == "__main__":
    main()
