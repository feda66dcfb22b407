"""Run cases by hand: ``python -m fuzzing --folder /tmp/f --kind store``; repeat one with --number."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from fuzzing.campaign import COMPUTING_LIMIT, Campaign, cases_of
from fuzzing.kinds import KINDS


def main() -> None:
    """Run the cases asked for and print each fault."""
    parser = argparse.ArgumentParser(prog="python -m fuzzing", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="Where whole and damaged things are written.")
    parser.add_argument("--kind", action="append", help="May be repeated; else all.")
    parser.add_argument("--cases", type=int, default=2000, help="Of all kinds together; a kind has its share.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--number", type=int, help="This case alone.")
    parser.add_argument("--limit", type=float, default=COMPUTING_LIMIT, help="Seconds of computing for a reading.")
    parser.add_argument("--out", type=Path, help="All findings, one JSON a line.")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    names = [kind.name for kind in KINDS if not given.kind or kind.name in given.kind]
    campaign = Campaign(given.folder, given.limit)
    one = given.number is not None
    cases = [(name, given.number) for name in names] if one else cases_of(names, given.cases, given.seed)
    begun, ends = time.monotonic(), Counter[str]()
    findings = []
    for finding in campaign.run(cases):
        findings.append(finding)
        ends[finding.end] += 1
        if finding.is_fault or one:
            print(json.dumps(asdict(finding)), flush=True)
    campaign.close()
    if given.out is not None:
        given.out.write_text("".join(json.dumps(asdict(finding)) + "\n" for finding in findings))
    print(f"{len(cases):,} cases, {len(findings):,} readings in {time.monotonic() - begun:.0f} s: {dict(ends)}")


if __name__ == "__main__":
    main()
