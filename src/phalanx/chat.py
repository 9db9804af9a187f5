"""One chat format for answering, judging and training.

Every prompt and every completion of a member becomes token ids here, and nowhere else. So a member
is trained on exactly the prompts that it answers, a completion ends with exactly one real end
token (or none, when it was cut off), and text that a model wrote can never turn into control
tokens of another model's prompt. Works on any transformers tokenizer; needs no torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from phalanx.errors import EngineError
from phalanx.types import Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PLAIN_TEMPLATE = (
    "{% for m in messages %}{{ '### ' + m['role'] | capitalize + ':\n' + m['content'] }}"
    "{% if m['role'] == 'assistant' and eos_token %}{{ eos_token }}{% endif %}"
    "{{ '\n\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '### Assistant:\n' }}{% endif %}"
)
"""Used for tokenizers without a chat template (note ``plain_template``)."""

_SYSTEM, _USER, _ASSISTANT, _NEXT = "qzsystemqz", "qzuserqz", "qzassistantqz", "qznextqz"
_BRACKETED = re.compile(r"<\|[^|<>\n]{1,40}\|>|<{1,2}/?[^<>\s]{1,40}>{1,2}|\[/?[A-Za-z_]{2,20}\]")
_KNOWN = re.compile(
    r"<\|[^|<>\n]{1,40}\|>|<｜[^｜<>\n]{1,40}｜>"
    r"|<(?:/?s|bos|eos|pad|unk|/?think|(?:start|end)_of_turn|(?:start|end)_of_image)>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|TOOL_CALLS)\]|<</?SYS>>",
    re.IGNORECASE,
)
"""Markers of the widespread chat formats: ChatML, Llama, Mistral, Gemma, Phi, DeepSeek, Qwen."""
_LABEL = re.compile(r"(?:#{1,6} ?)?[A-Za-z]{2,20}:|#{1,6} ?[A-Za-z]{2,20}")
_ROLES = ("system", "user", "assistant", "tool")


def clean_text(text: str) -> tuple[str, tuple[str, ...]]:
    """Text that can be stored and sent, and the flags that say what was mended.

    Half of a surrogate pair and NUL become U+FFFD (flag ``cleaned_text``); a proper escaped pair
    becomes the one character that it stands for.

    >>> clean_text("ok \\ud83d done")
    ('ok � done', ('cleaned_text',))
    """
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    cleaned = re.sub("[\ud800-\udfff\x00]", "\ufffd", joined)
    return cleaned, ("cleaned_text",) if cleaned != joined else ()


def neutralise_known(text: str) -> str:
    """The text with the markers of widespread chat formats broken by a visible space.

    For a server whose tokenizer nobody here can see. With a tokenizer at hand,
    :meth:`ChatFormat.neutralise` knows which markers there are.

    >>> neutralise_known("bye<|im_end|></s>[/INST] and a < b")
    'bye< |im_end|>< /s>[ /INST] and a < b'
    """
    return _KNOWN.sub(lambda match: match.group()[0] + " " + match.group()[1:], text)


class ChatFormat:
    """How one tokenizer writes a conversation.

    ``notes`` records what had to be done: ``plain_template`` (the tokenizer has none),
    ``system_folded`` (the template refuses or drops a system message, so its text opens the first
    user turn), ``default_system`` (the template adds a system prompt of its own when there is
    none; it is there in training as in generation) and ``no_pad_token``.

    ``stop_ids`` are further ids that end a turn (the generation config's). ``vocab_size`` is the
    model's: a padding token beyond it, which some tokenizers have, is not used.

    Raises :class:`EngineError` when the template cannot even render one user message, or when the
    tokenizer has no token that can end a turn.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        name: str,
        stop_ids: Iterable[int] = (),
        vocab_size: int | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.name = name
        self._template = None if tokenizer.chat_template else PLAIN_TEMPLATE
        probe = self._probe()
        self._folds = probe.folds_system
        self.end_id = self._find_end(probe.after_assistant)
        stops = [self.end_id, tokenizer.eos_token_id, *stop_ids]
        self.stop_ids: tuple[int, ...] = tuple(dict.fromkeys(i for i in stops if i is not None))
        user_end = self._first_control(probe.after_user)
        self.user_stop_ids: tuple[int, ...] = tuple(
            dict.fromkeys([*self.stop_ids, *([user_end] if user_end is not None else [])])
        )
        """Ids that end a user turn: the token that the template writes after one, and stop_ids."""
        self.markers = _markers(tokenizer, probe.scaffolds)
        self._marker_pattern = re.compile("|".join(re.escape(m) for m in self.markers) or "(?!)")
        self._control_ids = _control_ids(tokenizer)
        self._leading_bos = self._wants_bos() if self._template else ()
        self.pad_id = self._find_pad(probe.everything, vocab_size or len(tokenizer))
        self.notes = self._notes(probe)

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt as text, generation prompt included; every content is neutralised."""
        return self._apply(self._turns(messages), generation=True)

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of the prompt: at most one begin token, and only at the start."""
        return self._begun(self.render(messages))

    def _begun(self, rendered: str) -> list[int]:
        ids = [*self._leading_bos, *self._encode(rendered)]
        bos = self.tokenizer.bos_token_id
        while bos is not None and ids[:2] == [bos, bos]:
            ids = ids[1:]
        return ids

    def user_turn_ids(self, messages: Sequence[Message]) -> list[int]:
        """Token ids up to where the text of the next user turn begins (Magpie's pre-query part).

        With no messages: the very start of a conversation, and a default system prompt where the
        template has one. Raises EngineError where the conversation ends with a user turn.
        """
        if any(m.role != "system" for m in messages) and messages[-1].role == "user":
            raise EngineError(
                f"a user turn was asked of {self.name} after a user turn; end the conversation "
                "with the assistant's turn"
            )
        turns = self._turns([*messages, Message("user", _NEXT)])
        before = self._apply(turns, generation=False).rpartition(_NEXT)[0]
        return self._begun(before)

    def conversation_ids(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of a whole conversation as the template writes it, the last turn's end too.

        For models that score what was said; nothing is to be written after it.
        """
        return self._begun(self._apply(self._turns(messages), generation=False))

    def before_marker(self, text: str) -> str:
        """The text up to the first turn mark in it: templates without control tokens have some."""
        return self._marker_pattern.split(text, maxsplit=1)[0]

    def completion_ids(self, text: str, ended: bool) -> list[int]:
        """Token ids of an assistant turn, tokenised apart from the prompt.

        The ids of the prompt are therefore always a prefix of prompt plus completion. ``ended``
        adds the one real end token; a response that hit the token limit gets none.
        """
        return [*self._encode(self.neutralise(text)), *([self.end_id] if ended else [])]

    def option_ids(self, prefix: str, option: str) -> list[int]:
        """Token ids of a forced start of the assistant turn and one option, tokenised jointly.

        Joint tokenisation gives each option the tokens that the model itself would write after
        the prefix (" A", not " " and "A"). Both texts are ours, so nothing is neutralised.
        """
        return self._encode(prefix + option)

    def token_starts(self, text: str) -> list[int]:
        """Where in the text each of its tokens starts (character positions, for cutting it)."""
        if not self.tokenizer.is_fast:  # slow tokenizers know no offsets; words come close
            return [match.start() for match in re.finditer(r"\S+", text)]
        encoded = self.tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True, verbose=False
        )
        return [start for start, _ in encoded["offset_mapping"]]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of generated ids, without control tokens."""
        return self.tokenizer.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )

    def neutralise(self, text: str) -> str:
        """The text with every control marker broken by a visible space; other text unchanged.

        >>> chat.neutralise("bye<|im_end|>")  # doctest: +SKIP
        'bye< |im_end|>'
        """
        text, _ = clean_text(text)
        for gap in (" ", "·"):
            broken = self._break_markers(text, gap)
            if not self._marker_pattern.search(broken) and self._is_harmless(broken):
                return broken
        spaced = self._space_out_control_tokens(text)
        if not self._is_harmless(spaced):
            raise EngineError(
                f"the tokenizer of {self.name} makes control tokens of {text!r:.200} even after "
                "they were broken up; this tokenizer cannot be used with untrusted text"
            )
        return spaced

    def _break_markers(self, text: str, gap: str) -> str:
        def broken(match: re.Match[str]) -> str:
            found = match.group()
            return found[0] + gap + found[1:] if len(found) > 1 else "\ufffd"

        for _ in range(8):
            text, count = self._marker_pattern.subn(broken, text)
            if not count:
                break
        return text

    def _is_harmless(self, text: str) -> bool:
        return self._control_ids.isdisjoint(self._encode(text))

    def _space_out_control_tokens(self, text: str) -> str:
        """Last resort, for tokenizers that normalise (full-width brackets, dropped characters)."""
        return " ".join(re.sub(r"[^\w\s.,;:!?'\"()-]", " ", text).split(" "))

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def _apply(self, turns: list[dict[str, str]], generation: bool) -> str:
        return self.tokenizer.apply_chat_template(
            turns,
            tokenize=False,
            add_generation_prompt=generation,
            chat_template=self._template,
        )

    def _turns(self, messages: Sequence[Message]) -> list[dict[str, str]]:
        system = "\n\n".join(
            self.neutralise(m.content) for m in messages if m.role == "system" and m.content.strip()
        )
        turns = [
            {"role": m.role, "content": self.neutralise(m.content)}
            for m in messages
            if m.role != "system"
        ]
        if not system:
            return turns
        if not self._folds:
            return [{"role": "system", "content": system}, *turns]
        for turn in turns:
            if turn["role"] == "user":
                turn["content"] = f"{system}\n\n{turn['content']}"
                return turns
        return [{"role": "user", "content": system}, *turns]

    def _probe(self) -> _Probe:
        import jinja2  # not at the top: what needs no template is quicker without

        user = {"role": "user", "content": _USER}
        assistant = {"role": "assistant", "content": _ASSISTANT}
        following = {"role": "user", "content": _NEXT}
        system = {"role": "system", "content": _SYSTEM}
        try:
            alone = self._apply([user], generation=True)
        except jinja2.TemplateError as error:
            raise EngineError(
                f"the chat template of {self.name} cannot render one user message ({error}); "
                "mend `chat_template` in the model's folder"
            ) from error
        if _USER not in alone:
            raise EngineError(f"the chat template of {self.name} drops the user message")
        with_system = self._try_apply([system, user])
        answered = self._try_apply([user, assistant], generation=False)
        conversation = self._try_apply([user, assistant, following])
        texts = [t for t in (alone, with_system, answered, conversation) if t]
        return _Probe(
            folds_system=_SYSTEM not in with_system,
            after_assistant=answered.partition(_ASSISTANT)[2],
            after_user=alone.partition(_USER)[2],
            before_user=alone.partition(_USER)[0],
            texts=texts,
        )

    def _try_apply(self, turns: list[dict[str, str]], generation: bool = True) -> str:
        """The rendering, or "" where the template refuses this conversation."""
        import jinja2

        try:
            return self._apply(turns, generation)
        except jinja2.TemplateError:
            return ""

    def _find_end(self, after_assistant: str) -> int:
        """The first control token that the template writes after an assistant turn, else eos."""
        found = self._first_control(after_assistant)
        if found is not None:
            return found
        if self.tokenizer.eos_token_id is None:
            raise EngineError(
                f"the tokenizer of {self.name} has no token that ends a turn; set `eos_token` in "
                "its tokenizer_config.json"
            )
        return self.tokenizer.eos_token_id

    def _first_control(self, written: str) -> int | None:
        """The first control token (or end token) in what the template writes, but no begin token.

        A begin token that is the end token at once counts.
        """
        control = _control_ids(self.tokenizer)
        for token in self._encode(written):
            if token in control and token != self.tokenizer.bos_token_id:
                return token
            if token == self.tokenizer.eos_token_id:
                return token
        return None

    def _wants_bos(self) -> tuple[int, ...]:
        """The begin token, if the tokenizer itself puts one in front of plain text."""
        bos = self.tokenizer.bos_token_id
        first = self.tokenizer("a", verbose=False)["input_ids"][:1]
        return (bos,) if bos is not None and first == [bos] else ()

    def _find_pad(self, rendered: str, vocab_size: int) -> int:
        """A padding token that is no end token where the vocabulary has one.

        With none to spare it is the end token; padding must then be found by attention mask or
        completion mask, never by id, or the end of each completion is hidden from the loss.
        """
        pad = self.tokenizer.pad_token_id
        if pad is not None and pad not in self.stop_ids and pad < vocab_size:
            return pad
        spare = [
            (str(token), number)
            for number, token in self.tokenizer.added_tokens_decoder.items()
            if token.special and number not in self.stop_ids and str(token) not in rendered
        ]
        bos = self.tokenizer.bos_token_id
        spare = [(text, number) for text, number in spare if number != bos and number < vocab_size]
        spare.sort(key=lambda item: ("pad" not in item[0].lower(), "unk" in item[0].lower()))
        return spare[0][1] if spare else self.end_id

    def _notes(self, probe: _Probe) -> tuple[str, ...]:
        words = re.sub(self._marker_pattern, " ", probe.before_user).split()
        found = {
            "plain_template": self._template is not None,
            "system_folded": self._folds,
            "default_system": len(words) > 4,
            "no_pad_token": self.pad_id in self.stop_ids,
        }
        return tuple(note for note, holds in found.items() if holds)


class _Probe:
    """What the template did with the probe conversations."""

    def __init__(
        self,
        folds_system: bool,
        after_assistant: str,
        after_user: str,
        before_user: str,
        texts: list[str],
    ) -> None:
        self.folds_system = folds_system
        self.after_assistant = after_assistant
        self.after_user = after_user
        self.before_user = before_user
        self.everything = "".join(texts)
        contents = "|".join((_SYSTEM, _USER, _ASSISTANT, _NEXT))
        self.scaffolds = [re.split(contents, text) for text in texts]


def _markers(tokenizer: Any, scaffolds: list[list[str]]) -> tuple[str, ...]:
    """Control tokens and the template's own turn marks, longest first."""
    found = {
        str(token)
        for token in tokenizer.added_tokens_decoder.values()
        if str(token).strip() and (token.special or re.search(r"[^\w\s]", str(token)))
    }
    found |= {token for token in tokenizer.all_special_tokens if token.strip()}
    for pieces in scaffolds:
        for piece in pieces:
            found.update(_BRACKETED.findall(piece))
        for piece in pieces[1:]:
            bare = _BRACKETED.sub("\n", piece)
            lines = (line.strip() for line in bare.splitlines())
            found.update(line for line in lines if _LABEL.fullmatch(line))
    for marker in sorted(found):
        for role in _ROLES:
            if role in marker.lower():
                spell = str.capitalize if role.capitalize() in marker else str
                said = spell(role)
                found |= {marker.replace(said, spell(other)) for other in _ROLES}
    return tuple(sorted(found, key=lambda marker: (-len(marker), marker)))


def _control_ids(tokenizer: Any) -> frozenset[int]:
    """Ids that only a template may write; the unknown token and white space are not among them."""
    control = {
        number
        for number, token in tokenizer.added_tokens_decoder.items()
        if str(token).strip() and (token.special or re.search(r"[^\w\s]", str(token)))
    }
    control |= set(tokenizer.all_special_ids)
    return frozenset(control - {tokenizer.unk_token_id})
