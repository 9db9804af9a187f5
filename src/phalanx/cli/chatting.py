"""`phalanx chat`: talk to a member or to the collective, or let two of them duel blind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phalanx.cli.base import app
from phalanx.cli.conversing import COMMAND, JsonLines, Plain, Screen, Terminal, Typed
from phalanx.cli.labelling import login
from phalanx.errors import ConfigError, Interrupted, PhalanxError

if TYPE_CHECKING:
    from phalanx.ledger import Ledger
    from phalanx.serving.chatting import Chat, Transcript
    from phalanx.serving.desk import Desk
    from phalanx.serving.duelling import Duelling, Round

HELP = """\
/with NAME       talk to another member, or to the collective; of a run also to NAME@ITERATION
/duel [A B]      let two members answer blind, side by side
/undo            take back the last verdict: it counts as skip
/system [TEXT]   another system prompt; without a text, none
/retry           the last turn once more, by another seed
/reset           forget the conversation
/save FILE       write this conversation to a file, now and after every turn
/quit            end; so does Ctrl-D
Ctrl-C stops the answer that is being written. A line that ends in \\ goes on in the next one, and
lines that are pasted are one message. A message that begins with a blank is no command."""
_ASKED = "Which is better: a, b, tie or skip (and why)? "

Partner = Annotated[
    str,
    typer.Option(
        "--with",
        metavar="NAME",
        help="Whom to talk to: a member, NAME@ITERATION of a run, or collective. Default: the "
        "first member.",
    ),
]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[A B] [KEY=VALUE]...",
        help="With --duel: who duels; two of several are drawn for every turn. Default: all "
        "members. And settings that win over the file.",
    ),
]
Together = Annotated[
    str,
    typer.Option(
        metavar="KIND",
        help="Who the collective is: mixture, council, debate, best_of_n, none; auto: what "
        "the configuration says, else by how its members judge.",
    ),
]


@app.command()
def chat(
    source: Annotated[
        str, typer.Argument(metavar="RUN|CONFIG", help="A run's folder, or a configuration.")
    ],
    words: Words = None,
    name: Partner = "",
    duel: Annotated[
        bool, typer.Option("--duel", help="Two answer every turn, blind; you say which is better.")
    ] = False,
    iteration: Annotated[
        str, typer.Option(metavar="N|latest|best", help="Of a run: members as they were then.")
    ] = "",
    collective: Together = "auto",
    system: Annotated[str, typer.Option(help="A system prompt.")] = "",
    max_new_tokens: Annotated[
        int | None, typer.Option(min=1, help="Longest answer. Default: answer.max_new_tokens.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0.0, help="0 is greedy. Default: answer.temperature.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Default: the configuration's.")] = None,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Keep conversations: JSON lines.")
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="With --duel: verdicts become labels of the run.")
    ] = False,
    judge: Annotated[
        str | None,
        typer.Option("--judge", "--as", help="Whose verdicts. Default: the name of this login."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines: JSON lines.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Answers and faults only.")] = False,
) -> None:
    """Talk to a member or to the collective; or let two members answer blind, and judge them.

    `phalanx chat runs/mine --with ada`

    `phalanx chat runs/mine --duel ada bob --record`

    In a terminal /help shows what else can be typed. From a pipe every line is a turn. Verdicts of
    duels are rows of the run with --record, as those of `phalanx label` are; they move no
    reputation.
    """
    from phalanx.serving.chatting import Chat, open_transcript
    from phalanx.serving.desk import open_desk
    from phalanx.serving.duelling import contestants

    overrides = [word for word in words or [] if "=" in word]
    named = [word for word in words or [] if "=" not in word]
    person = login() if judge is None else judge
    _refuse(source, name, duel, named, record, judge)
    typed = Typed(as_json)
    with _ended_by_ctrl_c(), ExitStack() as stack:
        ledger = stack.enter_context(_recording(source, person)) if record else None
        desk = stack.enter_context(
            open_desk(source, overrides, iteration=iteration, collective=collective)
        )
        if name:
            desk.about(name)  # raises where it is nobody
        talk = Chat(desk, desk.sampling(max_new_tokens, temperature), desk.seed(seed), system)
        session = _Session(talk, typed, _screen(typed, as_json, quiet), person, ledger)
        session.partner = name or desk.names[0]
        if duel:
            session.duel_of(contestants(desk, named))
        session.transcript = None if save is None else open_transcript(save)
        session.run()
        if (count := session.num_unanswered) and not typed.is_terminal:
            raise PhalanxError(f"{count} turn{'s have' if count > 1 else ' has'} no answer")


@contextmanager
def _ended_by_ctrl_c() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted("the chat was stopped") from None


def _refuse(
    source: str, name: str, duel: bool, named: list[str], record: bool, judge: str | None
) -> None:
    """Raise ConfigError for options that do not go together, all of them in one message."""
    from phalanx.ledger.labels import person_named

    faults = []
    if duel and name:
        faults.append(f"--with {name} and --duel: talk to one, or let two duel")
    if named and not duel:
        faults.append(
            f"{' '.join(named)}: no setting is written so (KEY=VALUE); whom to talk to is named by "
            "--with, and who duels after --duel"
        )
    if record and not duel:
        faults.append("--record goes with --duel: it is the verdicts of duels that are recorded")
    if judge is not None and not record:
        faults.append(f"--judge {judge}: it goes with --record")
    if record and not Path(source).expanduser().is_dir():
        faults.append(f"--record: verdicts become rows of a run, and {source} is no run's folder")
    if record and judge is not None:
        try:
            person_named(judge)
        except ConfigError as error:
            faults += [f"--judge: {fault}" for fault in error.faults]
    if faults:
        raise ConfigError(faults)


def _recording(source: str, person: str) -> Ledger:
    """The ledger of a run, open for writing. Raises LedgerError where there is none, or where the
    run goes on: before a model is loaded."""
    from phalanx.ledger import Ledger, run_ledger_path
    from phalanx.ledger.labels import person_named

    person_named(person)
    path = run_ledger_path(Path(source).expanduser())
    with Ledger(path):
        pass  # whoever opens it for writing would make one
    return Ledger(path, writable=True)


def _screen(typed: Typed, as_json: bool, quiet: bool) -> Screen:
    if as_json:
        return JsonLines()
    return Terminal(quiet) if typed.is_terminal else Plain(quiet)


class _Session:
    """One chat from its first line to its last."""

    def __init__(
        self, chat: Chat, typed: Typed, screen: Screen, person: str, ledger: Ledger | None
    ) -> None:
        self.chat = chat
        self.partner = ""
        self.duelling: Duelling | None = None
        self.transcript: Transcript | None = None
        self.num_unanswered = 0
        self._typed = typed
        self._screen = screen
        self._person = person
        self._ledger = ledger
        self._waiting = ""
        """A command that was typed where a verdict was expected."""
        self._no_duel = False
        """Whether the last thing that was shown is a duel without a verdict to give."""

    def duel_of(self, names: tuple[str, ...]) -> None:
        from phalanx.serving.duelling import Duelling

        self.duelling = Duelling(self.chat, names, self._person, self._ledger)

    def run(self) -> None:
        """Until /quit, or the end of the input."""
        self._screen.hint(self._greeting())
        try:
            while (text := self._next()) is not None:
                command = COMMAND.fullmatch(text.rstrip())
                if command is None:
                    if text.strip() and not self._is_stray(text):
                        self.chat.ask(text.strip("\n"))
                        self._turn()
                elif self._obey(command[1], (command[2] or "").strip()):
                    break
        finally:
            if self.transcript is not None:
                self.transcript.close()

    def _greeting(self) -> str:
        how = "/help shows what can be typed, Ctrl-C stops an answer, Ctrl-D ends."
        if self.duelling is None:
            return f"Talking to {self.partner}; there are {_all(self.chat.desk)}. {how}"
        kept = (
            f"verdicts are recorded as those of {self._person}"
            if self._ledger is not None
            else "verdicts are not recorded (--record)"
        )
        return f"Two of {', '.join(self.duelling.names)} answer blind; {kept}. {how}"

    def _next(self) -> str | None:
        """The next message or command; None at the end."""
        if self._waiting:
            text, self._waiting = self._waiting, ""
            return text
        while True:
            try:
                return self._typed.message(self._screen.prompt)
            except KeyboardInterrupt:
                if not self._typed.is_terminal:
                    raise
                self._screen.note("\nCtrl-D or /quit ends the chat")

    # Turns ---------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Have the turn at hand answered, and go on with the answer."""
        try:
            at = self._single() if self.duelling is None else self._both(self.duelling)
        except (Interrupted, KeyboardInterrupt):
            if not self._typed.is_terminal:
                raise
            self._screen.stopped()
        except PhalanxError as error:  # an engine that broke: the chat may go on
            self._unanswered(str(error))
        else:
            if at is not None:
                self._judged(at)

    def _single(self) -> None:
        began = time.monotonic()
        self._screen.begins(self.partner)
        (reply,), num_dropped = self.chat.hear([self.partner], self._screen.piece)
        if reply.why:
            self._unanswered(reply.why)
            return
        self.chat.take(reply)
        self._screen.answer(reply, time.monotonic() - began, num_dropped)
        self._save()

    def _both(self, duelling: Duelling) -> Round | None:
        self._screen.hint("Both are writing.")
        replies, num_dropped = duelling.hear()
        for reply in replies:
            if reply.why:
                self._unanswered(f"{reply.name}: {reply.why}")
                return None
        return duelling.round(replies, num_dropped)

    def _unanswered(self, why: str) -> None:
        self.num_unanswered += 1
        self._screen.no_answer(why)

    def _judged(self, at: Round) -> None:
        """Show a duel, ask which answer is better, and go on with it."""
        assert self.duelling is not None
        self._screen.duel(at)
        if at.is_same:
            self.duelling.decide(at, "tie")
            self._screen.note(f"{at.left.name} and {at.right.name} wrote the same: no duel")
            self._no_duel = True
        elif (verdict := self._verdict()) is not None:
            recorded = self.duelling.decide(at, *verdict)
            self._screen.verdict(at, verdict[0], recorded)
        else:
            return
        self._save()

    def _is_stray(self, text: str) -> bool:
        """Whether a line is the verdict of what was no duel: sent as a message it would put all
        verdicts of a script one turn off. Refused once, and not behind a blank."""
        from phalanx.serving.duelling import verdict_of

        was_none, self._no_duel = self._no_duel, False
        if not was_none or text[:1].isspace() or verdict_of(text) is None:
            return False
        self._screen.note(
            f"{text[:40]!r} reads as a verdict, and there was no duel: not sent, nothing recorded "
            "(to send it as a message, begin it with a blank)"
        )
        return True

    def _verdict(self) -> tuple[str, str] | None:
        """What the person says, and why; None where they leave it (nothing is remembered)."""
        from phalanx.serving.duelling import verdict_of

        while True:
            try:
                text = self._typed.line(_ASKED if self._screen.prompt else "")
            except KeyboardInterrupt:
                if not self._typed.is_terminal:
                    raise
                self._screen.note("\nnot decided; this turn is not remembered, /retry asks again")
                return None
            if text is None:
                self._waiting = "/quit"
                return None
            if COMMAND.fullmatch(text.strip()):
                self._waiting = text.strip()
                return None
            if found := verdict_of(text):
                return found
            self._screen.note(f"{text[:40]!r} is no verdict; expected a, b, tie or skip")

    def _save(self) -> None:
        if self.transcript is not None:
            self.transcript.write(self.chat.row())

    # Commands ------------------------------------------------------------------------------------

    def _obey(self, word: str, rest: str) -> bool:
        """Do what a command says; whether the chat ends."""
        self._no_duel = False
        known: dict[str, Callable[[str], None]] = {
            "help": lambda _: self._screen.note(HELP),
            "with": self._with,
            "duel": self._duel,
            "undo": self._undo,
            "system": self._system,
            "retry": self._retry,
            "reset": self._reset,
            "new": self._reset,
            "save": self._save_to,
        }
        if word in ("quit", "exit"):
            return True
        if word not in known:
            names = ", ".join(f"/{name}" for name in (*known, "quit"))
            self._screen.note(f"/{word} is not known; there are {names}")
            return False
        try:
            known[word](rest)
        except ConfigError as error:
            self._screen.note(str(error))
        return False

    def _with(self, name: str) -> None:
        self.chat.desk.about(name)  # raises where it is nobody
        self.partner, self.duelling = name, None
        self._screen.note(f"Talking to {name}; the conversation goes on (/reset forgets it)")

    def _duel(self, names: str) -> None:
        from phalanx.serving.duelling import contestants

        self.duel_of(contestants(self.chat.desk, names.replace(",", " ").split()))
        self._screen.note(self._greeting())

    def _undo(self, _: str) -> None:
        if self.duelling is None:
            raise ConfigError("/undo takes back a verdict, and this is no duel")
        self.duelling.take_back()
        if self.chat.turns:
            self._save()
        self._screen.note("The last verdict is taken back: it counts as skip.")

    def _system(self, text: str) -> None:
        self.chat.system = text
        self._screen.note("Another system prompt." if text else "No system prompt of yours.")

    def _retry(self, _: str) -> None:
        self.chat.ask_again()
        self._turn()

    def _reset(self, _: str) -> None:
        self.chat.reset()
        if self.transcript is not None:
            self.transcript.next()
        self._screen.note("A new conversation.")

    def _save_to(self, name: str) -> None:
        from phalanx.serving.chatting import open_transcript

        if not name:
            raise ConfigError("/save FILE: name a file")
        opened = open_transcript(name)
        if self.transcript is not None:
            self.transcript.close()
        self.transcript = opened
        if self.chat.turns:
            self._save()
        self._screen.note(f"Kept in {name}, after every turn")


def _all(desk: Desk) -> str:
    return ", ".join(desk.names)
