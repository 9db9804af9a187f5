"""Verbs that ask members without a run: mix, judge, synthesise."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from phalanx.cli.base import Overrides, Quiet, Source, app, folder_of, load, out, stopping
from phalanx.errors import ConfigError

OutFolder = Annotated[
    Path | None,
    typer.Option("--out", help="Where answers are recorded; the same command goes on from there."),
]


@app.command()
def mix(
    source: Source,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROMPT] [KEY=VALUE]...",
            help="The prompt, in quotes, and settings that win over the file. Without a prompt: a "
            "chat in a terminal, otherwise the prompt is standard input.",
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="Answer every row of this file of instructions.")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="With --file: the answers. Default: OUT/answers.jsonl."),
    ] = None,
    out_folder: OutFolder = None,
    show_proposals: Annotated[
        bool, typer.Option("--show-proposals", help="Show what the proposers wrote, too.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Answer by the mixture: a prompt, a file, or a chat in the terminal.

    `phalanx mix config.yaml "Why is the sky blue?" mixture.samples=2`

    The answer goes to standard output, everything else to standard error; a terminal shows it while
    it is written. A file's rows may be
    conversations; each is answered at its end. In a chat /new forgets the conversation, /exit
    ends it, and Ctrl-C ends an answer.
    """
    from phalanx.api import folder_or_scratch
    from phalanx.cli import talking
    from phalanx.sources import clean_text

    prompt, overrides = split_words(words or [])
    config = load(source, overrides, "mix")
    if file is not None:
        if prompt is not None:
            raise ConfigError(f"--file {file} has the prompts; leave out {prompt[:60]!r}")
        return _mix_file(config, source, file, to, out_folder, quiet)
    if to is not None:
        raise ConfigError("--to goes with --file; a single answer goes to standard output")
    with stopping(), folder_or_scratch(out_folder) as folder:
        if prompt is None and sys.stdin.isatty() and sys.stdout.isatty():
            talking.chat(config, folder, show_proposals, quiet)
            return None
        prompt = clean_text(_typed() if prompt is None else prompt)
        if not prompt.strip():
            raise ConfigError("the prompt is empty; give it in quotes, or on standard input")
        talking.answer(config, folder, prompt.strip(), show_proposals, quiet)
    return None


@app.command()
def judge(
    source: Source,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Rows with instruction (or prompt), and two responses: response_a and "
            "response_b, left and right, or chosen and rejected.",
        ),
    ],
    overrides: Overrides = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            help="rubric, expected, pairwise, likelihood, reward, or moa: the mixture as one "
            "judge. Default: judge.protocol."
        ),
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", help="The verdicts. Default: OUT/verdicts.jsonl.")
    ] = None,
    out_folder: OutFolder = None,
    quiet: Quiet = False,
) -> None:
    """Judge pairs of responses in a file, by the pool's judges or by the mixture.

    `phalanx judge config.yaml pairs.jsonl --protocol moa --out runs/verdicts`

    With chosen and rejected, it says how often the judges agree with the file.
    """
    from phalanx.progress import for_terminal
    from phalanx.verdicts import judge_file, read_cases

    chosen = [] if protocol is None else [f"judge.protocol={json.dumps(protocol)}"]
    config = load(source, [*(overrides or []), *chosen], "judge")
    cases = read_cases(str(file), config)
    folder = out_folder or folder_of(source, config, "judge")
    target = target_of(to or folder / "verdicts.jsonl", folder)
    with stopping():
        made = judge_file(config, cases, folder, progress=for_terminal(quiet=quiet))
    write_jsonl(target, made.rows)
    statuses = ", ".join(f"{count} {status}" for status, count in made.statuses.items())
    _tell(f"Wrote {len(made.rows)} verdicts to {target}: {statuses}")
    for line in made.judges:
        agreement = f"; {line.agreement}" if line.agreement else ""
        _tell(
            f"  {line.name}: {line.judgments} judgments, {line.unreadable} unreadable, "
            f"{line.flipped} changed with the order{agreement}"
        )
    left_out = {
        name.removeprefix("evaluations.left_out."): count
        for name, count in made.panel.items()
        if name.startswith("evaluations.left_out.")
    }
    if left_out:
        listed = ", ".join(f"{count} of {name}" for name, count in left_out.items())
        _tell(f"  evaluations left out: {listed}")
    if unreadable := made.panel.get("criteria.unreadable"):
        _tell(f"  criteria that could not be read: of {unreadable} instructions")
    if made.agreement is not None:
        _tell(f"  together: {made.agreement}")
    _tell(f"In all {made.spent}. Record: {folder}")


@app.command()
def synthesise(
    source: Source,
    overrides: Overrides = None,
    member: Annotated[str, typer.Option("--member", help="Who invents instructions.")] = "",
    count: Annotated[int, typer.Option("--count", min=1, help="How many to keep.")] = 100,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="The instructions. Default: OUT/instructions.jsonl."),
    ] = None,
    out_folder: OutFolder = None,
    system: Annotated[
        str, typer.Option("--domain-system", help="A system prompt that steers the topics.")
    ] = "",
    domain: Annotated[str, typer.Option("--domain", help="Written into every row.")] = "",
    rater: Annotated[
        str, typer.Option("--rater", help="A member that rates; good and excellent ones are kept.")
    ] = "",
    rewarder: Annotated[
        str, typer.Option("--reward", help="A reward model that scores the member's own answer.")
    ] = "",
    min_reward: Annotated[
        float | None, typer.Option("--min-reward", help="The least score, with --reward.")
    ] = None,
    max_tries: Annotated[
        int | None, typer.Option("--max-tries", min=1, help="Default: twenty times --count.")
    ] = None,
    min_chars: Annotated[int, typer.Option("--min-chars", min=1, help="Shortest kept.")] = 12,
    max_chars: Annotated[int, typer.Option("--max-chars", min=1, help="Longest kept.")] = 4000,
    overlap: Annotated[
        float,
        typer.Option("--overlap", min=0.1, max=1.0, help="Near duplicates share this much."),
    ] = 0.7,
    temperature: Annotated[float, typer.Option("--temperature", min=0.0)] = 1.0,
    max_new_tokens: Annotated[int, typer.Option("--max-new-tokens", min=1)] = 256,
    quiet: Quiet = False,
) -> None:
    """Let a member invent instructions (Magpie), filtered; they load as instructions.source.

    `phalanx synthesise config.yaml --member ada --count 500 --to instructions.jsonl`

    The member is shown nothing but the beginning of a user's turn, after a system prompt if there
    is one (--domain-system, or else its own). Each try is kept, or dropped
    by the name of one filter.
    """
    from phalanx.collective.screening import Limits
    from phalanx.progress import for_terminal
    from phalanx.synthesis import Wish
    from phalanx.synthesis import synthesise as make

    if not member:
        raise ConfigError("--member is missing; name the member that is to invent instructions")
    config = load(source, overrides, "synthesise")
    folder = out_folder or folder_of(source, config, "synthesise")
    target = target_of(to or folder / "instructions.jsonl", folder)
    wish = Wish(
        member=member, count=count, system=system, domain=domain, rater=rater, rewarder=rewarder,
        min_reward=min_reward, max_tries=max_tries, temperature=temperature,
        max_new_tokens=max_new_tokens, limits=Limits(min_chars, max_chars, overlap),
    )  # fmt: skip
    with stopping():
        made = make(config, folder, wish, progress=for_terminal(quiet=quiet))
    write_jsonl(target, made.rows)
    _tell(f"Wrote {len(made.rows)} instructions to {target}: {made}")
    if len(made.rows) < count:
        _tell(f"That is fewer than {count}; raise --max-tries (in another --out) for more")
    _tell(f"In all {made.spent}. Record: {folder}")


def _mix_file(
    config: Any, source: str, file: Path, to: Path | None, out_folder: Path | None, quiet: bool
) -> None:
    from phalanx.mixing import mix_file, read_prompts
    from phalanx.progress import for_terminal

    prompts = read_prompts(str(file), config)
    progress = for_terminal(quiet=quiet)
    for note in prompts.notes():
        progress.say(note)
    folder = out_folder or folder_of(source, config, "mix")
    target = target_of(to or folder / "answers.jsonl", folder)
    with stopping():
        made = mix_file(config, prompts, folder, progress=progress)
    write_jsonl(target, made.rows)
    counts = ", ".join(f"{count} {name}" for name, count in made.counts.items() if count)
    _tell(f"Wrote {len(made.rows)} rows to {target}: {counts}")
    for name, count in made.left_out.items():
        _tell(f"  {name}: {count} proposals left out (failed or empty)")
    _tell(f"In all {made.spent}, {made.seconds:.1f} s this time. Record: {folder}")


def split_words(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """The prompt, if there is one, and the settings: words ``key.path=value`` with a known key.

    One word without a blank that begins with the name of a section is a setting also where its key
    is not known: a slip, which is to be reported and not answered.

    >>> split_words(["x=3. What is 2x?", "mixture.samples=2"])
    ('x=3. What is 2x?', ['mixture.samples=2'])
    """
    prompts, overrides = [], []
    for word in words:
        key = re.match(r"([a-z_]+(?:\.[\w-]+)*)=", word)
        setting = key is not None and _names_setting(key.group(1), " " not in word)
        (overrides if setting else prompts).append(word)
    if len(prompts) > 1:
        raise ConfigError(
            f"expected one prompt, got {len(prompts)}: {prompts[0][:40]!r} and "
            f"{prompts[1][:40]!r}; put the prompt in quotes, and write settings as KEY=VALUE"
        )
    return (prompts[0] if prompts else None), overrides


def _names_setting(key: str, guess: bool) -> bool:
    """Whether a key is one of the schema, or with ``guess`` below a section of it."""
    from phalanx.config.keys import sections_with, shape_at

    *sections, name = key.split(".")
    if shape_at((*sections, name), {}) is not None or key in sections_with(name):
        return True
    return guess and bool(sections) and shape_at(sections[:1], {}) is not None


def _typed() -> str:
    """Standard input; bytes that are no UTF-8 are replaced."""
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    return sys.stdin.read()


def write_jsonl(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """One object a line; a file appears whole or not at all, a pipe or device gets the lines."""
    from phalanx.placing import placed

    with placed(path) as place, place.open("w", encoding="utf-8") as lines:
        for row in rows:
            lines.write(json.dumps(row, ensure_ascii=False) + "\n")


def target_of(path: Path, folder: Path) -> Path:
    """Where rows go; that it can be written is known before anybody is asked."""
    from phalanx.ledger.store import FILE_NAME

    if path.is_dir():
        raise ConfigError(f"--to {path} is a folder; name a file")
    if path.resolve() == (folder / FILE_NAME).resolve():
        raise ConfigError(f"--to {path} is the record itself; name another file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--to {path}: there is no such folder, and none can be made: {error}"
                          ) from None  # fmt: skip
    return path


def _tell(text: str) -> None:
    out.print(text, markup=False, highlight=False, soft_wrap=True)
