"""The verb serve-openai: members and the collective as an endpoint."""

from __future__ import annotations

from typing import Annotated

import typer

from phalanx.cli.base import app, listed, out


@app.command("serve-openai")
def serve_openai(
    source: Annotated[
        str, typer.Argument(metavar="RUN|CONFIG", help="A run's folder, or a configuration.")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Settings that win over the file."),
    ] = None,
    members: Annotated[
        list[str] | None,
        typer.Option("--members", "--member", metavar="A,B", help="These alone. Default: all."),
    ] = None,
    iteration: Annotated[
        str, typer.Option(metavar="N|latest|best", help="Of a run: members as they were then.")
    ] = "latest",
    collective: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="Who the model `collective` is: mixture, council, debate, best_of_n, none; auto: "
            "by the configuration.",
        ),
    ] = "auto",
    host: Annotated[
        str, typer.Option(help="The address. Beyond this machine: 0.0.0.0, and whoever reaches it.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 is any free one.")] = 8138,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="A further name it is called by."),
    ] = None,
    api_key: Annotated[
        str,
        typer.Option(
            envvar="PHALANX_API_KEY", show_envvar=True, help="Clients have to send this key."
        ),
    ] = "",
    max_tokens: Annotated[
        int, typer.Option(min=1, help="Longest chat answer where a client gives no number.")
    ] = 1024,
) -> None:
    """Serve members and the collective as an OpenAI-compatible endpoint, for any client.

    `phalanx serve-openai runs/mine --port 8138`

    It serves /v1/chat/completions and /v1/completions, with streams and log-probabilities. Nothing
    is recorded. Ctrl-C ends it.
    """
    from phalanx.serving.desk import open_desk
    from phalanx.serving.endpoint import serve

    def say(text: str) -> None:
        out.print(text, markup=False, highlight=False, soft_wrap=True)

    with open_desk(
        source,
        overrides or [],
        members=listed(members),
        iteration=iteration,
        collective=collective,
    ) as desk:
        serve(
            desk,
            host=host,
            port=port,
            allowed=listed(allow_host),
            api_key=api_key.strip(),
            longest=max_tokens,
            say=say,
        )
