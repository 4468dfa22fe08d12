"""Differences between two manifests, for people. Pure."""

from trainhouse.events.model.dataset import Manifest


def differences(before: Manifest, after: Manifest) -> list[tuple[str, str, str]]:
    """Returns each difference with both values, as text; none for equal manifests."""
    if before == after:
        return []
    rows = [
        ("licence", before.licence, after.licence),
        ("purposes", ", ".join(before.purposes), ", ".join(after.purposes)),
        ("split rule", before.split_rule, after.split_rule),
        ("samples", str(before.row_count), str(after.row_count)),
        ("bytes", str(before.bytes), str(after.bytes)),
    ]
    old, new = ({f.name: f"{f.type}{' or none' if f.optional else ''}" for f in manifest.fields} for manifest in (before, after))
    rows += [(f"field {name}", old.get(name, "absent"), new.get(name, "absent")) for name in sorted(old.keys() | new.keys())]
    for split in sorted(before.splits.keys() | after.splits.keys()):
        was, is_now = (f"{m.splits[split].samples} samples" if split in m.splits else "absent" for m in (before, after))
        rows.append((f"split {split}", was, is_now))
    found = [row for row in rows if row[1] != row[2]]
    shards = [{shard.sha256 for split in m.splits.values() for shard in split.shards} for m in (before, after)]
    shared = len(shards[0] & shards[1])
    return [*found, ("shards", f"{len(shards[0])}, {shared} of them in both", f"{len(shards[1])}, {shared} of them in both")]
