"""Sending to the Hugging Face Hub: what is there, what may be made, and clear words for failures.

Repositories are private unless it is asked otherwise. An upload that broke off goes on with the
same command: the Hub has by content what arrived, and nothing is sent twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from phalanx.errors import ConfigError, HubError, MissingPackage
from phalanx.handing.parcel import Repository
from phalanx.version import __version__

if TYPE_CHECKING:
    from huggingface_hub import DatasetInfo, HfApi, ModelInfo

LOGIN = "log in with `hf auth login`, or set HF_TOKEN to a token that may write"


@dataclass(frozen=True, slots=True)
class State:
    """A repository as it is on the Hub; ``private`` None where it does not exist yet, ``stays``
    the files there that nothing of this takes the place of."""

    repository: Repository
    private: bool | None
    stays: tuple[str, ...] = ()

    def visibility(self, public: bool) -> str:
        """What it will be, in words."""
        if self.private is None:
            return "new, public" if public else "new, private"
        return "exists, private" if self.private else "exists, PUBLIC"


def hub() -> HfApi:
    """The Hub that this environment names (HF_ENDPOINT). Raises MissingPackage."""
    try:
        from huggingface_hub import HfApi
    except ImportError:
        raise MissingPackage("huggingface_hub", "hf", "the Hugging Face Hub") from None
    return HfApi(
        endpoint=os.environ.get("HF_ENDPOINT") or None,
        library_name="phalanx",
        library_version=__version__,
    )


def refuse_without_token() -> None:
    """Raise HubError where nobody is logged in; the Hub is not asked."""
    hub()  # raises where its package is missing
    from huggingface_hub import get_token

    if not get_token():
        raise HubError(f"there is no token for the Hugging Face Hub: {LOGIN}")


def look(repositories: Sequence[Repository], *, public: bool = False) -> list[State]:
    """What is there already. Raises HubError without an answer, and ConfigError where an existing
    repository is public and that was not asked for."""
    api, states = hub(), []
    for one in repositories:
        with clear_words(one.name):
            there = _there(api, one)
        private = there.private if there else None
        if private is False and not public:
            raise ConfigError(
                f"the {one.kind} repository {one.name} exists and is public, so everybody would "
                "see what is sent; make it private there, name another, or say --public"
            )
        own = {".gitattributes", *(name for name, _ in one.files)}
        names = sorted(file.rfilename for file in (there.siblings or ())) if there else ()
        states.append(State(one, private, tuple(name for name in names if name not in own)))
    return states


def _there(api: HfApi, one: Repository) -> ModelInfo | DatasetInfo | None:
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    try:
        return api.repo_info(one.name, repo_type=one.kind)
    except GatedRepoError:
        raise
    except RepositoryNotFoundError:
        return None


def send(
    states: Sequence[State], *, public: bool = False, say: Callable[[str], None] = lambda _: None
) -> list[str]:
    """Make the repositories that do not exist, and commit every file: their addresses.

    Raises HubError that says what was sent before, and that the same command goes on.
    """
    api, done = hub(), list[str]()
    for state in states:
        one = state.repository
        say(f"Sending {one.kind} {one.name} ({len(one.files)} files)")
        with clear_words(one.name, done):
            if state.private is None:
                api.create_repo(one.name, repo_type=one.kind, private=not public, exist_ok=True)
                # Somebody may have made it in the meantime: what is there counts.
                made = _there(api, one)
                if made and not made.private and not public:
                    raise HubError(f"{one.name} turned out to be public; nothing was sent to it")
            api.upload_folder(
                repo_id=one.name, repo_type=one.kind, folder_path=one.folder,
                commit_message=f"From phalanx {__version__}",
            )  # fmt: skip
        prefix = "datasets/" if one.kind == "dataset" else ""
        done.append(f"{api.endpoint}/{prefix}{one.name}")
    return done


@contextmanager
def clear_words(name: str, done: Sequence[str] = ()) -> Iterator[None]:
    """Failures of the Hub as HubError: what was refused, why, and what to do."""
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HTTPError,  # of the HTTP package that this version of huggingface_hub is built on
        LocalEntryNotFoundError,
        LocalTokenNotFoundError,
        OfflineModeIsEnabled,
    )

    try:
        yield
    except LocalTokenNotFoundError:
        raise HubError(f"there is no token for the Hugging Face Hub: {LOGIN}") from None
    except OfflineModeIsEnabled:
        raise HubError("HF_HUB_OFFLINE is set; unset it to reach the Hugging Face Hub") from None
    except (HTTPError, ConnectionError, RuntimeError, ValueError) as error:
        cause: BaseException = error
        if isinstance(error, (LocalEntryNotFoundError, RuntimeError)):  # it says only which file
            cause = error.__cause__ or error
        tell = _refused if isinstance(cause, HfHubHTTPError) else _silent
        raise HubError(tell(name, cause) + _so_far(done)) from None


def _silent(name: str, error: BaseException) -> str:
    why = f"{type(error).__name__}: {error}".splitlines()[0]
    return f"the Hugging Face Hub and {name}: {why}; look at the network, then try again"


def _refused(name: str, error: Any) -> str:
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    status = error.response.status_code if error.response is not None else 0
    said = str(getattr(error, "server_message", "") or "").strip() or str(error).splitlines()[0]
    said = "".join(sign if sign.isprintable() else " " for sign in said)[:300]
    ways = {
        401: f"the token is not valid here; {LOGIN}",
        403: "the token may not do that there; to send it needs the role write, to read what is "
        "private the right to read it",
        404: "there is no such repository, or it is private and the token may not see it",
        409: "it was changed meanwhile; try again",
        413: "a file is too large",
        429: "too many requests; wait a little, then try again",
    }
    way = ways.get(status, "the fault is the Hub's; try again later" if status >= 500 else "")
    if isinstance(error, GatedRepoError):
        way = "its owner has to let you in: ask on its page, log in, then try again"
    elif isinstance(error, RepositoryNotFoundError):  # 401 where nobody is logged in
        way = ways[404]
    return f"the Hugging Face Hub refused {name} ({status}: {said})" + (f": {way}" if way else "")


def _so_far(done: Sequence[str]) -> str:
    sent = f"sent already: {', '.join(done)}; " if done else ""
    return f". {sent}the same command goes on where this stopped" if done else ""
