"""Where the numbers came from: what all methods share, what each has of its own, and the surroundings of the runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from regmixup.report.results import Setting


def sources(setting: Setting) -> dict[str, str]:
    """Facts by name, for one setting."""
    configs = {label: setting.of(label)[0].config for label in setting.labels}
    records = [run.provenance for run in setting.runs]
    first = configs[setting.labels[0]]
    names = [name for name in first if name not in ("kind", "seed", "train_set")]
    shared = [name for name in names if all(config.get(name) == first[name] for config in configs.values())]
    own = [name for name in names if name not in shared]
    posthoc = {label: {"posthoc": setting.of(label)[0].posthoc} for label in setting.labels}
    return {
        "recipe": _listed(first, shared),
        **{label: _listed(config | posthoc[label], [*own, "posthoc"]) for label, config in configs.items()},
        "train set": ", ".join(f"{name} (sha256 {value[:16]}…)" for name, value in records[0]["data"].items()),
        "device": ", ".join(sorted({str(record["device"]) for record in records})),
        "training time": f"{sum(record['seconds'] for record in records):.0f} s over {len(records)} runs",
        "versions": ", ".join(f"{name} {value}" for name, value in records[0]["versions"].items()),
    }


def _listed(fields: Mapping[str, Any], names: Iterable[str]) -> str:
    """Fields with their values; a value with fields of its own as "RegMixup (alpha 20.0, eta 1.0)"."""

    def worded(value: Any) -> str:
        if not isinstance(value, dict):
            return "none" if value is None else str(value)
        inner = _listed(value, [name for name in value if name != "kind"])
        return f"{value['kind']} ({inner})" if inner else str(value["kind"])

    return ", ".join(f"{name} {worded(fields.get(name))}" for name in names)
