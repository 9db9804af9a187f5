"""One arm, or one pool, in a process of its own: python -m phalanx.comparing.arm WHAT CONFIG FOLDER

WHAT is ``run`` or ``recruit``; further arguments are the runs whose responses may be taken. The
process ends as soon as the one that started it is gone: it watches its standard input.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path

from phalanx.comparing.sharing import taken_from
from phalanx.config import from_yaml
from phalanx.config.schema import Config
from phalanx.errors import PhalanxError
from phalanx.loop import align
from phalanx.progress import for_terminal
from phalanx.types import Progress


def run(config: Config, folder: Path, shared: Sequence[Path], progress: Progress) -> None:
    """Start or continue an arm, which takes what it may from other runs of its seed.

    Raises as :func:`phalanx.loop.align`.
    """
    align(config, folder, progress=progress, elsewhere=taken_from(shared), one_of_many=True)


def recruit(config: Config, folder: Path, progress: Progress) -> None:
    """Make the pool of a seed. Raises as :func:`phalanx.recruit.recruit_to`."""
    from phalanx.recruit import recruit_to

    recruit_to(config, folder, progress=progress)


def main(arguments: Sequence[str]) -> int:
    what, source, folder, *shared = arguments
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # As phalanx.cli does: notes of the libraries below to their developers.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.filterwarnings("ignore", category=FutureWarning)
    progress = for_terminal(quiet=False)
    try:
        config = from_yaml(Path(source).read_text(encoding="utf-8"), source)
        if what == "recruit":
            recruit(config, Path(folder), progress)
        else:
            run(config, Path(folder), [Path(one) for one in shared], progress)
    except PhalanxError as error:
        print(f"phalanx: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    finally:
        progress.finish()
    return 0


def _end_with_parent() -> None:
    """Its end of our standard input closes when it dies, however it does."""
    while os.read(0, 1):  # not sys.stdin, whose lock would be held when this process ends
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
