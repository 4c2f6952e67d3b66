#!/usr/bin/env python3
"""sqlite-fence beside other queues: installs them, runs them in turn, prints tables.

    python3 benches/peers/run.py            # some minutes, and the first time the installation
    python3 benches/peers/run.py --jobs 10000 --rounds 9
    python3 benches/peers/run.py --only fence_next,honker --quick

Everything goes into target/peers; Debian packages that are missing are installed where root runs
it. The last run's tables are in target/peers/tables.md; `--page docs/benchmarks.md` puts them
there too.
"""

import argparse
import concurrent.futures
import os
import shutil
import sys

sys.dont_write_bytecode = True

import arms as peers
import install
import phases
import servers
from processes import Unsupported
from report import CONFIGURATIONS, Report, name

MARKS = ("<!-- last run -->", "<!-- end of last run -->")


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    jobs = "in each run, a quarter of them at FULL"
    parser.add_argument("--jobs", type=int, default=2_000, help=jobs)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--only", help="names of arms, separated by commas")
    parser.add_argument("--page", metavar="FILE", help="also put the tables into this file")
    parser.add_argument("--goqite", metavar="DIR", help="a folder with the source of goqite")
    return parser.parse_args()


def main():
    chosen = options()
    if chosen.quick:
        chosen.jobs, chosen.rounds = chosen.jobs // 10, 1
    data = os.path.join(install.FOLDER, "data")
    shutil.rmtree(data, ignore_errors=True)
    os.makedirs(data)
    running = []

    def start(key):
        process, address = getattr(servers, key)(data)
        running.append(process)
        return {"PEERS_" + key.upper(): address}

    try:
        found, missing = peers.collect(start, chosen.goqite)
        if chosen.only:
            wanted = chosen.only.split(",") + [peers.REFERENCE]
            found = [arm for arm in found if arm.key in wanted]
        report = compare(found, data, chosen)
        report.missing += missing
    finally:
        for process in running:
            servers.stop(process)
    shutil.rmtree(data)
    with open(os.path.join(install.FOLDER, "tables.md"), "w") as file:
        file.write(report.text())
    if chosen.page:
        put_into(chosen.page, report.text())
    print(report.text())


def put_into(page, text):
    """Replaces what stands between the two marks of the page."""
    with open(page) as file:
        before, _, rest = file.read().partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not end:
        raise SystemExit("%s has no %s .. %s" % (page, *MARKS))
    with open(page, "w") as file:
        file.write("".join([before, MARKS[0], "\n\n", text, "\n", MARKS[1], after]))


def compare(arms, data, chosen):
    report = Report(peers.REFERENCE)
    load = os.getloadavg()[0]

    def attempt(arm, what, method, *args):
        """What a peer cannot do is a note of the report, not the end of the run."""
        try:
            return method(arm, data, *args)
        except Exception as e:
            reason = str(e) if isinstance(e, Unsupported) else "%s: %s" % (type(e).__name__, e)
            note = "%s, %s: not measured: %s" % (arm.label, what, reason)
            if note not in report.notes:
                report.notes.append(note)
            install.say(note)
            return None

    def facts_of(arm, data, full):
        with phases.folder(data) as path, phases.workers(arm, path, full=full) as (worker,):
            return worker.facts

    facts = {arm.key: attempt(arm, "start", facts_of, False) for arm in arms}
    arms = [arm for arm in arms if facts[arm.key]]
    for arm in arms:
        report.labels[arm.key] = arm.label
        durable = attempt(arm, name(True), facts_of, True)
        settings = [f["durability"] if f else None for f in (facts[arm.key], durable)]
        report.versions[arm.key] = (facts[arm.key]["version"], *settings)
    for number in range(chosen.rounds):
        install.say("round", number + 1, "of", chosen.rounds)
        report.rounds.append({})
        for full, count in CONFIGURATIONS:
            # Every other round backwards, so that nobody always follows the same neighbour.
            for arm in arms if number % 2 == 0 else reversed(arms):
                if full and report.versions[arm.key][2] is None:
                    continue
                jobs = max(20, int(chosen.jobs * arm.share / (4 if full else 1)))
                what = "%s, %d at once" % (name(full), count)
                measured = attempt(arm, what, phases.throughput, full, count, jobs)
                if measured:
                    report.rounds[-1][arm.key, full, count] = measured
    for arm in arms:
        install.say("growth:", arm.label)
        scale, rounds = 10 if chosen.quick else 1, (chosen.rounds + 1) // 2
        report.growth[arm.key] = attempt(arm, "growth", phases.growth, scale, rounds)
    report.load = (load, os.getloadavg()[0])
    install.say("stale completions")
    with concurrent.futures.ThreadPoolExecutor(6) as threads:
        for answers in threads.map(lambda arm: interleave(arm, facts[arm.key], attempt), arms):
            report.stale.update(answers)
    return report


def interleave(arm, facts, attempt):
    answers = {}
    for same_name in (False, True) if facts["names"] else (None,):
        what = "stale completion"
        both = [attempt(arm, what, phases.stale, bool(same_name), late) for late in (False, True)]
        if all(both):
            answers[arm.key, same_name] = (*both, facts["expires"])
    return answers


if __name__ == "__main__":
    main()
