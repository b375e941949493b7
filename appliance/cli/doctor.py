"""`appliance doctor`: what is found on this machine, a line for each thing that the daemon needs."""

import typer


def doctor(ctx: typer.Context) -> None:
    """Check this machine and the configuration.

    The exit code is 1 if anything fails; a warning does not count.
    """
    from appliance.cli.examination import Examination, examine  # noqa: PLC0415 - slow to import

    failed = False
    for finding in examine(Examination(ctx.obj, ctx.obj.state_dir)):
        advice = f" - {finding.advice}" if finding.advice else ""
        typer.echo(f"{finding.level:<4}  {finding.about}: {finding.text}{advice}")
        failed = failed or finding.level == "fail"
    if failed:
        raise typer.Exit(1)
