"""Called by `make home`: what was measured, as a report.

    home.py PACKAGES FIGURES OUT     OUT/run.json, and OUT/report.md for people
"""

import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

PACKAGES, FIGURES, OUT = map(pathlib.Path, sys.argv[1:])
# What is asked for: bytes of a .deb, seconds until a node has joined, commands, milliseconds more
# than idle for what steers.
DEB_MAX, JOINED_MAX_S, COMMANDS, MORE_MAX_MS, MACHINES = 8_000_000, 10, 2, 5, 20


def said(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def figures(name):
    path = FIGURES / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def machine():
    fields = dict(line.split(":", 1) for line in open("/proc/cpuinfo") if ":" in line)
    cpu = next(value.strip() for key, value in fields.items() if key.strip() == "model name")
    memory = int(open("/proc/meminfo").readline().split()[1]) / 2**20
    system = dict(line.strip().split("=", 1) for line in open("/etc/os-release") if "=" in line)
    changed = "+" if said("git", "status", "--porcelain", "--untracked-files=no") else ""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "commit": said("git", "rev-parse", "--short=12", "HEAD") + changed,
        "cpu": cpu, "cores": os.cpu_count(), "memory_gib": round(memory),
        "system": system["PRETTY_NAME"].strip('"'), "kernel": platform.release(),
    }


def sizes():
    ends = ("warren", ".deb", ".rpm", ".tar.xz", ".tar")
    files = sorted(path for path in PACKAGES.iterdir() if path.name.endswith(ends))
    return {path.name: path.stat().st_size for path in files if path.is_file()}


def row(what, asked, found, met):
    return f"| {what} | {asked} | {found} | {'' if met is None else 'yes' if met else '**no**'} |"


def of_package(run):
    rows = [
        row("size of the `.deb`", f"≤ {DEB_MAX:,} bytes", f"{size:,}", size <= DEB_MAX)
        for name, size in run["sizes"].items() if name.endswith(".deb")
    ]
    package = run["package"]
    if package:
        times = [one["dpkg_s"] + one["up_s"] for one in package["runs"]]
        met = max(times) <= JOINED_MAX_S and package["commands"] <= COMMANDS
        spread = f"{min(times):.1f} to {max(times):.1f}, {len(times)} machines"
        found = f"{statistics.median(times):.1f} s ({spread})"
        what = f"from `dpkg -i` to a node that has joined, {package['commands']} commands"
        rows.append(row(what, f"≤ {JOINED_MAX_S} s", found, met))
    return rows


def of_ansible(run):
    ansible = run["ansible"]
    if not ansible:
        return []
    found = f"{ansible['machines']} in {ansible['joined_s']:.0f} s"
    what = "machines that one run of the Ansible role installs and joins"
    again = row("a second run, which changes nothing", "", f"{ansible['second_run_s']:.0f} s", None)
    return [row(what, f"{MACHINES}", found, ansible["machines"] >= MACHINES), again]


def of_steering(run):
    steers = run["steers"]
    if not steers:
        return []
    more = steers["rate"]["rtt_p99_ms"] - steers["idle"]["rtt_p99_ms"]
    what = "what steers, beside bulk in the same link: round trip of 99 in 100, more than idle"
    return [row(what, f"≤ {MORE_MAX_MS} ms", f"{more:.1f} ms", more <= MORE_MAX_MS)]


def sizes_told(run):
    names = {"warren": "the program, static and stripped"}
    all_sizes = run["sizes"].items()
    lines = [f"| {names.get(name, f'`{name}`')} | {size:,} |" for name, size in all_sizes]
    return ["## Sizes", "", "| what | bytes |", "|---|---:|", *lines, ""]


def package_told(run):
    package = run["package"]
    if not package:
        return []
    parts = package["parts"]
    runs = enumerate(package["runs"], 1)
    lines = [f"| {at} | {one['dpkg_s']:.2f} | {one['up_s']:.2f} |" for at, one in runs]
    return [
        "## Installing and joining", "",
        f"Load before: {package['load_before']}. Each machine is a guest that boots systemd, and has"
        " the file.", "",
        "| machine | `dpkg -i`, s | `warren up TOKEN`, s |", "|---|---:|---:|", *lines, "",
        "One more machine took the parts of `dpkg -i` one by one:", "",
        "| part | s |", "|---|---:|",
        f"| files | {parts['unpack_s']:.2f} |",
        f"| the package's script | {parts['configure_s']:.2f} |",
        "| triggers of others, above all Debian's index of manual pages |"
        f" {parts['triggers_s']:.2f} |", "",
    ]


def ansible_told(run):
    ansible = run["ansible"]
    if not ansible:
        return []
    return [
        "## Ansible", "",
        f"Load before: {ansible['load_before']}. A server, a relay and {ansible['nodes']} nodes,"
        " by ssh, 20 at once. They, and Ansible, share the cores of this machine.", "",
    ]


def steering_told(run):
    steers = run["steers"]
    if not steers:
        return []
    heads = {"idle": "idle", "no_rate": "beside bulk", "rate": "beside bulk, `--line-rate 19mbit`"}
    lines = []
    for key, head in heads.items():
        one = steers[key]
        moved = f"{one['moved_mbit_s']:.1f}" if one["moved_mbit_s"] else "–"
        cells = [f"{one['rtt_p50_ms']:.1f}", f"{one['rtt_p99_ms']:.1f}", one["asked"], one["lost"]]
        lines.append("| " + " | ".join(map(str, [head, *cells, moved])) + " |")
    return [
        "## What steers", "",
        "A line of 20 Mbit/s each way with 10 ms each way and a queue of 500 packets. Bulk is four TCP"
        " streams.", "",
        "| | round trip, half, ms | 99 in 100, ms | asked | lost | bulk, Mbit/s |",
        "|---|---:|---:|---:|---:|---:|", *lines, "",
    ]


def report(run):
    own = run["machine"]
    rows = of_package(run) + of_ansible(run) + of_steering(run)
    absent = ", ".join(name for name in ("package", "ansible", "steers") if not run[name])
    told = ["Not measured here: " + absent + ".", ""] if absent else []
    lines = [
        "# At home", "", "    make home", "",
        f"{own['date']}, commit {own['commit']}. {own['cpu']}, {own['cores']} cores,"
        f" {own['memory_gib']} GiB, {own['system']}, Linux {own['kernel']}.",
        "What was found beside, by hand or once, is in [beside.md](beside.md).", "",
        "| what | required | found | met |", "|---|---|---|---|", *rows, "",
        *told, *sizes_told(run), *package_told(run), *ansible_told(run), *steering_told(run),
    ]
    return "\n".join(lines).rstrip() + "\n"


def main():
    run = {"machine": machine(), "sizes": sizes()}
    for name in ("package", "ansible", "steers"):
        run[name] = figures(name)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "run.json").write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n")
    text = report(run)
    (OUT / "report.md").write_text(text)
    print(text)


main()
