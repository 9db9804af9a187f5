"""The bases in memory, and whose weights they show at the moment.

While a member serves, the base's weights are exactly base + adapter: each delta is added in
float32 to an untouched copy of the base weight and rounded once. They are restored by copying that
copy back, never by subtraction, which would drift in bfloat16. While a member trains, PEFT's
adapter sits on the untouched base, and is taken off afterwards. A member all of whose weights are
trained gets a model of its own, and is a base of its own from then on.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phalanx.chat import ChatFormat
from phalanx.config.schema import LoraSettings
from phalanx.errors import EngineError, MissingPackage
from phalanx.types import Member
from phalanx.weights import adapters
from phalanx.weights.builtin import resolve_model, without_bars
from phalanx.weights.models import save_model

if TYPE_CHECKING:
    import torch
    from peft import PeftModel
    from peft.tuners.lora.layer import LoraLayer
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

DEFAULT_CONTEXT = 2048
_CONTEXT_NAMES = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length")
KEPT_BYTES = 1 << 30
"""Adapters that served lately are kept in memory, up to this much for one base."""
BaseKey = tuple[str, str, bool]
AdapterKey = tuple[str, str]
"""Folder and content hash: a new version is never taken for the old one."""


@dataclass
class _Text:
    """What is known of a base without its weights."""

    source: Path | str
    tokenizer: PreTrainedTokenizerBase
    chat: ChatFormat
    context_length: int


@dataclass
class _Loaded:
    """A base in memory. ``shows`` is the adapter that its weights contain, None when pristine."""

    model: torch.nn.Module
    modules: list[tuple[str, int]]
    pristine: dict[str, torch.Tensor] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    wrapped: PeftModel | None = None
    shows: AdapterKey | None = None
    known: dict[AdapterKey, dict[str, LoraLayer]] = field(default_factory=dict)


class Weights:
    """Tokenizers, chat formats and models of the members, shared between those of one base.

    ``device`` is auto, cpu, cuda or cuda:N. ``keep_all_loaded`` holds every base at once instead
    of one at a time. ``merge_adapters`` off serves through the adapter. ``threads`` sets torch's
    CPU threads. Not for use from several threads at once.
    """

    def __init__(
        self,
        device: str = "auto",
        keep_all_loaded: bool = False,
        merge_adapters: bool = True,
        threads: int | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._device_name = device
        self.keep_all_loaded = keep_all_loaded
        self.merge_adapters = merge_adapters
        self.threads = threads
        self._say = say
        self._texts: dict[BaseKey, _Text] = {}
        self._loaded: dict[BaseKey, _Loaded] = {}
        self._busy = ""

    @property
    def loaded(self) -> dict[str, str]:
        """Bases in memory -> the adapter whose weights they show ("" for none)."""
        return {key[0]: (held.shows[0] if held.shows else "") for key, held in self._loaded.items()}

    @property
    def device(self) -> torch.device:
        torch = _torch()
        name = self._device_name
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        if name.startswith("cuda") and not torch.cuda.is_available():
            raise EngineError(f"device '{name}' was asked for, but torch sees no GPU; use cpu")
        return torch.device(name)

    def tokenizer(self, member: Member) -> PreTrainedTokenizerBase:
        """The member's tokenizer; it has a padding token (see :class:`ChatFormat`)."""
        return self._text(member).tokenizer

    def chat(self, member: Member) -> ChatFormat:
        """The member's chat format; its stop ids include those of the generation config."""
        return self._text(member).chat

    def context_length(self, member: Member) -> int:
        """Tokens that prompt and completion may have together."""
        return self._text(member).context_length

    @contextmanager
    def serving(self, member: Member) -> Iterator[torch.nn.Module]:
        """The model in evaluation mode with exactly the weights base + adapter.

        Asking for the same member again costs nothing. An adapter that was rewritten in place is
        noticed by its content.
        """
        with self._exclusive(member):
            held = self._load(member)
            self._show(held, member)
            model = held.wrapped if held.wrapped is not None else held.model
            model.eval()
            yield model

    @contextmanager
    def training(self, member: Member, lora: LoraSettings) -> Iterator[PeftModel]:
        """The untouched base with a trainable adapter called ``default``.

        It is the member's own adapter, or a new one by ``lora`` (seed torch first). Save it before
        leaving; afterwards the base is clean again for the next member.
        """
        with self._exclusive(member):
            held = self._load(member)
            self._restore(held)
            if member.adapter is None:
                wrapped = adapters.new_adapter(held.model, lora)
            else:
                wrapped = self._wrap(held, member, trainable=True)
            held.wrapped = wrapped
            try:
                wrapped.train()
                yield wrapped
            finally:
                self._restore(held)

    @contextmanager
    def training_all(self, member: Member) -> Iterator[PreTrainedModel]:
        """A model of the member's own with all weights trainable, its adapter merged into them.

        In float32, whatever the member is served in: in half precision most steps of a usual size
        would be rounded away. Training takes about 16 bytes a weight (weights, gradients and two
        moments), so the bases in memory make room first.
        """
        with self._exclusive(member):
            model = self._whole(member)
            model.requires_grad_(True)
            model.train()
            try:
                yield model
            finally:
                del model
                free()

    def merged(self, member: Member, dtype: str = "auto") -> PreTrainedModel:
        """A model of the member's own, base + adapter: added in float32 and rounded once.

        ``dtype`` auto is the precision in which the base is stored. Bases in memory make room.
        """
        with self._exclusive(member):
            stored = getattr(read_files(member, self._text(member).source)[0], "dtype", None)
            model = self._whole(member)
            name = str(stored or "float32").removeprefix("torch.") if dtype == "auto" else dtype
            return model.to(getattr(_torch(), name))

    def _whole(self, member: Member) -> PreTrainedModel:
        """The member's weights in float32, its adapter merged into them."""
        source = self._text(member).source
        self.release()
        if self.threads:
            _torch().set_num_threads(self.threads)
        model = _load_model(replace(member, dtype="float32"), source, self.device)
        if member.adapter is None:
            return model
        folder = adapters.resolve_adapter(member.adapter, member.name)
        return adapters.merged(model, folder, member.name)

    def save(self, member: Member, model: PreTrainedModel, folder: Path) -> None:
        """Write a model that was made from the member's base, whole, to ``folder``."""
        text = self._text(member)
        save_model(model, text.tokenizer, text.source, folder)

    def is_half(self, member: Member) -> bool:
        """Whether the member is served in half precision on this device."""
        return dtype_of(member.dtype, self.device) != _torch().float32

    def import_packages(self) -> None:
        """Load what the first base will need, ahead of it: that takes seconds.

        Raises MissingPackage.
        """
        _torch()
        try:
            from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: F401
        except ImportError as error:
            raise MissingPackage("transformers", "hf", "running a model in this process") from error

    def release(self) -> None:
        """Take every model off the device; tokenizers and chat formats stay."""
        self._loaded.clear()
        free()

    def close(self) -> None:
        """Forget every model."""
        self._loaded.clear()
        self._texts.clear()
        free()

    @contextmanager
    def _exclusive(self, member: Member) -> Iterator[None]:
        if self._busy:
            raise EngineError(f"{member.name} cannot use the weights: {self._busy} is using them")
        self._busy = member.name
        try:
            yield
        finally:
            self._busy = ""

    def _text(self, member: Member) -> _Text:
        key = member.base_key
        if key not in self._texts:
            self._texts[key] = _load_text(member, resolve_model(member.base, self._say))
        return self._texts[key]

    def _load(self, member: Member) -> _Loaded:
        key = member.base_key
        if key in self._loaded:
            return self._loaded[key]
        text = self._text(member)
        if not self.keep_all_loaded and self._loaded:
            self._loaded.clear()
            free()
        if self.threads:
            _torch().set_num_threads(self.threads)
        model = _load_model(member, text.source, self.device)
        held = _Loaded(model, _module_tree(model))
        self._loaded[key] = held
        return held

    def _show(self, held: _Loaded, member: Member) -> None:
        wanted = None
        if member.adapter is not None:
            folder = adapters.resolve_adapter(member.adapter, member.name)
            wanted = (str(folder), adapters.adapter_hash(folder))
        clean = not held.changed and held.wrapped is None
        if held.shows == wanted and (wanted is not None or clean):
            return
        layers = held.known.pop(wanted, None) if wanted else None
        self._restore(held, layers or ())
        if wanted is None:
            return
        if layers is None:
            held.wrapped = self._wrap(held, member)
            layers = adapters.plain_layers(held.wrapped) if self.merge_adapters else None
            if layers is not None:
                adapters.take_off(held.wrapped)
                held.wrapped = None
        if layers is not None:
            _add_deltas(held, layers)
            _keep(held, wanted, layers)
        held.shows = wanted

    def _wrap(self, held: _Loaded, member: Member, trainable: bool = False) -> PeftModel:
        folder = adapters.resolve_adapter(member.adapter or "", member.name)
        try:
            return adapters.load_adapter(held.model, folder, member.name, trainable)
        except BaseException:
            self._loaded.pop(member.base_key, None)
            raise

    def _restore(self, held: _Loaded, but: Collection[str] = ()) -> None:
        """Make the base what it was when it was loaded, ``but`` weights that change next anyway."""
        torch = _torch()
        if held.wrapped is not None:
            held.model = adapters.take_off(held.wrapped)
            held.wrapped = None
        with torch.no_grad():
            for name in sorted(held.changed.difference(but)):
                held.model.get_parameter(name).copy_(held.pristine[name])
                held.changed.remove(name)
        held.shows = None
        held.model.requires_grad_(False)
        held.model.eval()
        _stop_checkpointing(held.model)
        held.model.config.use_cache = True
        if _module_tree(held.model) != held.modules:
            self._loaded = {k: other for k, other in self._loaded.items() if other is not held}
            raise EngineError(
                f"the base '{held.model.name_or_path}' was changed by training (its layers are "
                "not those that were loaded); it has been dropped from memory"
            )


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingPackage("torch", "hf", "running a model in this process") from error
    return torch


def free() -> None:
    """Give back the memory of what nobody holds any more."""
    torch = _torch()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _module_tree(model: torch.nn.Module) -> list[tuple[str, int]]:
    return [(name, id(module)) for name, module in model.named_modules()]


def _stop_checkpointing(model: Any) -> None:
    """Trainers may have switched it on; transformers 5.24 renamed the pair of names."""
    if hasattr(model, "is_activation_checkpointing"):
        if model.is_activation_checkpointing:
            model.activation_checkpointing_disable()
    elif getattr(model, "is_gradient_checkpointing", False):
        model.gradient_checkpointing_disable()


def read_files(member: Member, source: Path | str) -> tuple[Any, PreTrainedTokenizerBase]:
    """Configuration and tokenizer of a model. Raises MissingPackage, and EngineError for none."""
    try:
        from transformers import AutoConfig, AutoTokenizer
    except ImportError as error:
        raise MissingPackage("transformers", "hf", "running a model in this process") from error
    trust = member.trust_remote_code
    try:
        config = AutoConfig.from_pretrained(source, trust_remote_code=trust)
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=trust)
    except (OSError, ValueError) as error:
        raise EngineError(
            f"{member.name}: the tokenizer of '{member.base}' could not be loaded: {error}"
        ) from error
    return config, tokenizer


def _load_text(member: Member, source: Path | str) -> _Text:
    config, tokenizer = read_files(member, source)
    from transformers import GenerationConfig

    try:
        generation = GenerationConfig.from_pretrained(source)
    except OSError:  # many bases have no generation_config.json; the model's own config serves
        generation = GenerationConfig.from_model_config(config)
    stops = generation.eos_token_id
    stops = [stops] if isinstance(stops, int) else list(stops or ())
    size = getattr(config.get_text_config(), "vocab_size", None)
    chat = ChatFormat(tokenizer, member.base, stops, size)
    if tokenizer.pad_token_id != chat.pad_id:
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(chat.pad_id)
    return _Text(source, tokenizer, chat, context_of(config, tokenizer))


def context_of(config: Any, tokenizer: Any) -> int:
    """Tokens that a model can read, by its configuration and its tokenizer."""
    text = config.get_text_config()
    lengths = [getattr(text, name, None) for name in _CONTEXT_NAMES]
    lengths.append(tokenizer.model_max_length)
    known = [int(length) for length in lengths if length and 0 < length < 10**8]
    return min(known) if known else DEFAULT_CONTEXT


def _load_model(member: Member, source: Path | str, device: torch.device) -> torch.nn.Module:
    from transformers import AutoModelForCausalLM, GenerationConfig

    try:
        with without_bars():
            model = AutoModelForCausalLM.from_pretrained(
                source,
                dtype=dtype_of(member.dtype, device),
                use_safetensors=True,
                trust_remote_code=member.trust_remote_code,
            )
    except (OSError, ValueError) as error:
        raise EngineError(
            f"{member.name}: the weights of '{member.base}' could not be loaded: {error}"
        ) from error
    # The request alone says how text is sampled: no repetition penalty or temperature of the
    # model's own generation config may creep in.
    model.generation_config = GenerationConfig()
    model.requires_grad_(False)
    return model.to(device).eval()


def dtype_of(name: str, device: torch.device) -> torch.dtype:
    """``auto`` is bfloat16 where the device multiplies it natively, else float32."""
    torch = _torch()
    if name != "auto":
        return getattr(torch, name)
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(False) else torch.float32
    able = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    native = able.get("avx512_bf16") or able.get("amx_bf16")
    return torch.bfloat16 if native else torch.float32


def _add_deltas(held: _Loaded, layers: dict[str, LoraLayer]) -> None:
    """weight = round(pristine + delta), from the pristine copy (kept in main memory)."""
    torch = _torch()
    with torch.no_grad():
        for name, layer in layers.items():
            weight = held.model.get_parameter(name)
            if name not in held.pristine:
                held.pristine[name] = weight.detach().to("cpu", copy=True)
            start = held.pristine[name].to(weight.device)
            delta = layer.get_delta_weight("default").to(weight.device, torch.float32)
            held.changed.add(name)
            if weight.dtype == torch.float32:
                torch.add(start, delta, out=weight)
            else:
                weight.copy_(delta.add_(start))


def _keep(held: _Loaded, key: AdapterKey, layers: dict[str, LoraLayer]) -> None:
    """Remember the adapter; forget those that served longest ago where memory is short."""
    held.known[key] = layers
    total = sum(map(adapters.num_bytes, held.known.values()))
    for oldest in list(held.known)[:-1]:
        if total <= KEPT_BYTES:
            break
        total -= adapters.num_bytes(held.known.pop(oldest))
