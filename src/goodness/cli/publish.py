"""The command publish: small files of a pool's runs, for a repository."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import tyro

from goodness.cli.terminal import err, out, parsed, print_json
from goodness.durable import readable_size
from goodness.paper.publish import publish


@dataclass(kw_only=True)
class PublishArgs:
    """Keep the finished runs of a pool as small files without weights, with a page that says what was run, and the
    tables, figures and findings that follow.

    The folder is read like the pool: goodness paper --out FOLDER. Runs published there before stay, unless the pool has
    them too, and so do files of your own. Of the same training a Stage 2 or a check of the theorems that one folder
    lacks is taken from the others.
    """

    pools: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs, such as runs/paper/short."""
    out: Path
    """Where to, such as results/paper-short."""
    mixed_versions: bool = False
    """Accept runs of one preset that other versions of a method or torch made; the page says so."""
    figures: bool = True
    """Whether figures are drawn too."""
    json: bool = False
    """Print one JSON object."""


def publish_command(arguments: list[str]) -> int:
    args = parsed(PublishArgs, arguments, "goodness publish")
    made = publish(args.pools, args.out, mixed_versions=args.mixed_versions, figures=args.figures)
    if args.json:
        names = ("runs", "kept")
        runs = {name: [{"preset": preset, "seed": seed} for preset, seed in getattr(made, name)] for name in names}
        about = {"folder": str(args.out), "scale": made.scale, "bytes": made.size}
        others = {"left_out": dict(made.left_out), "earlier": list(made.earlier), "replaced": dict(made.replaced)}
        others["removed"] = dict(made.removed)
        print_json({**about, **runs, **others})
        return 0
    kept = f", {len(made.kept)} kept from before" if made.kept else ""
    out.print(
        f"{len(made.runs)} runs at the scale {made.scale} published in {args.out}{kept}, {readable_size(made.size)}; "
        f"read them with: goodness paper --scale {made.scale} --out {shlex.quote(str(args.out))}",
        markup=False,
        soft_wrap=True,
    )
    for name, gone in made.replaced.items():
        gone = f", and {gone} gone with it" if gone else ""
        err.print(f"replaced: {name} is another training now{gone}", markup=False, soft_wrap=True)
    for name, why in made.removed.items():
        err.print(f"removed: {name} ({why})", markup=False, soft_wrap=True)
    for name, why in made.left_out.items():
        err.print(f"left out: {name} ({why})", markup=False, soft_wrap=True)
    for name in made.earlier:
        err.print(f"of earlier settings, read by nothing: {args.out / name}", markup=False, soft_wrap=True)
    return 0
