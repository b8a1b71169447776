"""`dragoman replay`: a recorded request, translated again."""

import sys
from pathlib import Path

import click

from dragoman_server.cli.options import FAILURE, USAGE_ERROR, exit_with

# The length to which a value that differs is shown.
_SHOWN_CHARACTERS = 300


@click.command(
    short_help="Translate a recorded request again.",
    params=[
        click.Argument(["file"], type=click.Path(dir_okay=False, path_type=Path)),
        click.Option(
            ["--minimize"], is_flag=True, help="shrink the recording to a small one with the same difference"
        ),
        click.Option(
            ["--output"],
            type=click.Path(dir_okay=False, writable=True, path_type=Path),
            metavar="FILE",
            help="where the small one goes; by default next to FILE, with .min before .json",
        ),
    ],
)
def replay(file: Path, minimize: bool, output: Path | None) -> None:
    """Translate a recording again, and print the first difference.

    FILE is from `dragoman serve --record DIR`: a request, and its response as it was translated then. Nothing is sent
    anywhere. The upstream's bytes come in the same pieces. Times, heartbeats and wrapped signatures do not count.

    Exit codes: 0 without a difference, 1 with one, 2 if FILE cannot be replayed.
    """
    # They take a while to import.
    from dragoman_server.cli.replay.minimize import minimize as shrink
    from dragoman_server.recordings.document import RecordingError, encode, joined, load
    from dragoman_server.recordings.replay import attempt_of, first_difference
    from dragoman_server.recordings.replay import replay as replay_recording

    try:
        recording = load(file)
        attempt = attempt_of(recording)
        replayed = replay_recording(recording)
    except RecordingError as error:
        exit_with(USAGE_ERROR, str(error))
    way = f"{recording.request.protocol} from {attempt.protocol} at {attempt.upstream}/{attempt.model}"
    if not recording.complete:
        click.echo("note: the recording is not complete, so it may differ where it ends", err=True)
    difference = first_difference(recording, replayed)
    if difference is None:
        click.echo(f"{file}: {way}: as it was recorded")
        return
    click.echo(f"{file}: {way}: the {difference.where} differs{_place(difference.event, difference.pointer)}")
    click.echo(f"  recorded: {_shown(difference.recorded)}")
    click.echo(f"  now:      {_shown(difference.now)}")
    if replayed.error:
        click.echo(f"  now the response fails: {replayed.error}")
    if minimize:
        small = shrink(recording, difference)
        target = output or file.with_suffix(".min.json")
        target.write_bytes(encode(small))
        kept, before = len(joined(attempt_of(small).pieces)), len(joined(attempt.pieces))
        click.echo(f"{target}: {kept} of the upstream's {before} bytes show it")
    sys.exit(FAILURE)


def _place(event: int | None, pointer: str) -> str:
    place = "" if event is None else f" at event {event}"
    return f"{place}{' at' if pointer and not place else ''} {pointer}".rstrip()


def _shown(value: str | None) -> str:
    if value is None:
        return "nothing"
    return value if len(value) <= _SHOWN_CHARACTERS else f"{value[:_SHOWN_CHARACTERS]}..."
