"""The exact versions that a report goes back to, as a section of its page."""

from collections.abc import Sequence
from itertools import groupby

from ml_assets.reports.page import section, table
from ml_assets.reports.wording import escape
from ml_assets.spec.records import InputVersion

LINEAGE_LINES = 600
"""Most input versions listed one by one; an hourly pipeline has thousands."""


def lineage_section(lineage: Sequence[InputVersion]) -> str:
    """Each input, partition by partition as far as there is room; empty where there is none."""
    if not lineage:
        return ""
    unique = sorted(set(lineage), key=lambda one: (one.key, one.partition or "", one.version))
    room = LINEAGE_LINES
    rows: list[str] = []
    for key, group in groupby(unique, key=lambda one: one.key):
        versions = list(group)
        rows.append(_lineage_row(key, versions, room))
        room = max(0, room - len(versions))
    head = "<th>Input</th><th>Partition</th><th>Version</th><th>Snapshot commit</th>"
    about = "The exact versions that were read. A version is a digest of the content."
    return section("Lineage", about, table(head, rows))


def _lineage_row(key: str, versions: Sequence[InputVersion], room: int) -> str:
    commits = sorted({one.commit[:12] for one in versions if one.commit})
    commit = ", ".join(commits[:3]) + (f" and {len(commits) - 3} more" if len(commits) > 3 else "")
    if len(versions) == 1:
        partition = escape(versions[0].partition or "–")
        version = f"<code>{escape(versions[0].version)}</code>"
    else:
        first, last = versions[0].partition or "–", versions[-1].partition or "–"
        partition = f"{escape(first)} … {escape(last)}"
        lines = "".join(
            f"<li>{escape(one.partition or '–')} <code>{escape(one.version[:12])}</code></li>"
            for one in versions[:room]
        )
        left = f"<li>and {len(versions) - room} more</li>" if len(versions) > room else ""
        version = (
            f"<details><summary>{len(versions)} versions</summary><ul>{lines}{left}</ul></details>"
        )
    return (
        f'<tr><th>{escape(key)}</th><td class="span">{partition}</td><td>{version}</td>'
        f"<td><code>{escape(commit) or '–'}</code></td></tr>"
    )
