"""`seawall policy check`: all mistakes of documents, or who charges each limit."""

import json
from typing import Any

import click

from seawall.cli.failure import Failure
from seawall.cli.policy.documents import MAX_BODY, load_document, read, whole
from seawall.cli.store import JSON


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@MAX_BODY
@JSON
def check(files: tuple[str, ...], max_body: str, as_json: bool) -> None:
    """Say whether documents are valid, and who charges each limit; `-` is standard input.

    Needs no store. All mistakes are printed, each with its line and column; exit code 1 if there is one.

    \b
    Example:
      seawall policy check policy.yaml
      seawall policy check --json a.yaml b.yaml
    """
    from seawall.policy.compile import build_policy, charged_by
    from seawall.policy.mistake import PolicyError

    results: list[dict[str, Any]] = []
    failed: list[str] = []
    for name in files:
        file, text = read(name)
        try:
            loaded = load_document(whole(file, text), file, max_body)
            build_policy(loaded, "")
        except PolicyError as e:
            results.append({"file": file, "ok": False, "mistakes": [m.as_dict() for m in e.mistakes]})
            failed.append(str(e))
            continue
        limits = charged_by(loaded.document)
        charged = [{"limit": limit, "charged_by": who} for limit, who in limits]
        results.append({"file": file, "ok": True, "needs": loaded.needs, "limits": charged, "mistakes": []})
        if not as_json:
            click.echo(f"{file}: ok")
            for limit, who in limits:
                click.echo(f"  limit {limit}: charged by {who}")
    if as_json:
        click.echo(json.dumps({"ok": not failed, "files": results}, indent=2))
        if failed:
            raise SystemExit(1)
    if failed:
        raise Failure("not valid\n" + "\n".join(failed))
