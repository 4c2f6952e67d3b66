"""The tables, in Markdown."""

import statistics

CONFIGURATIONS = [(False, 1), (False, 4), (True, 1), (True, 4)]
COLUMNS = ["enqueue", "1 worker", "4 workers"]


def name(full):
    return "FULL" if full else "NORMAL"


def number(value):
    return "%.3f" % value if value < 0.095 else "%.2f" % value if value < 9.95 else "%.0f" % value


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


class Report:
    def __init__(self, reference):
        self.reference = reference
        self.rounds = []  # of each round: (arm, full, workers) -> throughput
        self.growth, self.stale, self.versions, self.labels = {}, {}, {}, {}
        self.missing, self.notes, self.load = [], [], (0, 0)

    def ratio(self, key, full, count, what):
        """The median over the rounds of the ratio to the reference of the same round."""
        ratios = []
        for found in self.rounds:
            mine, other = found.get((key, full, count)), found.get((self.reference, full, count))
            if mine and other:
                ratios.append(mine[what] / other[what])
        return number(statistics.median(ratios)) if ratios else "-"

    def speed(self):
        rows = []
        for key, label in self.labels.items():
            row = [label]
            for full in (False, True):
                row.append(self.ratio(key, full, 1, "enqueue"))
                row += [self.ratio(key, full, count, "drain") for count in (1, 4)]
            found = self.growth.get(key)
            row += [number(found[what]) for what in ("backlog", "leases")] if found else ["-"] * 2
            rows.append(row)
        head = ["", *("%s %s" % (name(full), c) for full in (False, True) for c in COLUMNS)]
        return table(head + ["10^5 pending", "10^4 leases out"], rows)

    def absolute(self):
        """The reference's own numbers, to which the ratios refer."""
        cells = []
        for full, count in CONFIGURATIONS:
            found = [r[self.reference, full, count] for r in self.rounds]
            drain = statistics.median(f["drain"] for f in found)
            spread = (min(f["drain"] for f in found), max(f["drain"] for f in found))
            cells.append("%s %d: %.0f (%.0f to %.0f)" % (name(full), count, drain, *spread))
        load = "Load average at the beginning %.1f, at the end %.1f." % self.load
        text = "Jobs per second of the reference, median (and range): " + ", ".join(cells)
        return text + ". " + load

    def incidents(self):
        """What went wrong with several workers, added up over the rounds."""
        sentences = {
            "twice": "%d of %d jobs were handed out more than once",
            "busy": "%d calls for %d jobs failed with a busy error and were repeated",
        }
        for what, sentence in sentences.items():
            for key, full, count in self.rounds[-1]:
                found = [r[key, full, count] for r in self.rounds if (key, full, count) in r]
                if times := sum(f[what] for f in found):
                    text = sentence % (times, sum(f["jobs"] for f in found))
                    yield "%s, %s, %d workers: %s" % (self.labels[key], name(full), count, text)

    def verdict(self, found):
        if found["before"] != found["after"]:
            return "accepted: %s -> %s" % (found["before"], found["after"])
        if found["answer"]:
            return "accepted, no trace: " + found["after"]
        if found["answer"] is None:
            return "no effect, A is not told: " + found["after"]
        return "refused: " + found["after"]

    def interleavings(self):
        rows, mergeable = [], None
        for (key, same_name), (*both, expires) in self.stale.items():
            names = {None: "none", False: "A and B", True: "both A"}[same_name]
            verdicts = [self.verdict(found) for found in both]
            refused = all(verdict.startswith("refused") for verdict in verdicts)
            if refused and same_name and mergeable == key:
                rows[-1][2] = "A and B, or both A"  # refused all the same
            else:
                rows.append([self.labels[key], expires, names, *verdicts])
                mergeable = key if refused else None
        head = ["", "B gets the job by", "workers' names"]
        return table(head + ["A completes while B holds it", "A completes after B ended"], rows)

    def text(self):
        parts = [self.speed(), self.absolute(), self.interleavings()]
        rows = [[self.labels[key], *(t or "none" for t in told)] for key, told in self.versions.items()]
        parts.append(table(["", "version", "settings at NORMAL", "settings at FULL"], rows))
        notes = [*self.incidents(), *self.notes]
        notes += ["%s: not run: %s" % pair for pair in self.missing]
        if notes:
            parts.append("\n".join("- " + note for note in notes))
        return "\n\n".join(parts) + "\n"
