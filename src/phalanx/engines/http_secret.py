"""A key, and the forms in which a server may send it back: none of them is ever kept or shown."""

from __future__ import annotations

import html
import re

# Shorter keys are placeholders ("none", "EMPTY", "lm-studio") that a model may write by itself.
_LEAST_SECRET = 16
_HIDDEN = "[key]"
# Without these signs a text holds no escaped form.
_ESCAPES = ("\\", "&", "%")


class Secret:
    """Takes one key out of texts: as it is, and as JSON, repr, HTML and URLs write it.

    >>> Secret("sk-1/2").hide("bad key sk-1\\\\/2, sk%2D1%2F2")
    'bad key [key], [key]'
    """

    def __init__(self, key: str = "") -> None:
        self._key = key
        self._escaped = re.compile("".join(map(_forms, key)) or "(?!)", re.DOTALL)

    def hide(self, text: str) -> str:
        """For messages of servers: whatever the key is, it is taken out."""
        if not self._key:
            return text
        text = text.replace(self._key, _HIDDEN)
        if any(sign in text for sign in _ESCAPES):
            text = self._escaped.sub(_HIDDEN, text)
        return text

    def hide_long(self, text: str) -> str:
        """For what a model wrote: a placeholder that is no secret may be a word of it."""
        return self.hide(text) if len(self._key) >= _LEAST_SECRET else text


def _forms(character: str) -> str:
    """A pattern for one character of the key, escaped (more than once, even) or not."""
    code = ord(character)
    plain = {character, html.escape(character)}
    forms = [r"\\{0,4}" + re.escape(form) for form in sorted(plain)]
    forms += [rf"\\{{1,4}}(?:u00|x)(?i:{code:02x})", rf"%(?i:{code:02x})"]
    forms += [rf"&#0{{0,4}}{code};", rf"&#[xX]0{{0,4}}(?i:{code:x});"]
    return f"(?:{'|'.join(forms)})"


NO_SECRET = Secret()
