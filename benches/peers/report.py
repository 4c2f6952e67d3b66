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
        self.missing, self.notes = [], []

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
        return table(head + ["backlog x", "leases x"], rows)

    def absolute(self):
        """The reference's own numbers, to which the ratios refer."""
        cells = []
        for full, count in CONFIGURATIONS:
            found = [r[self.reference, full, count] for r in self.rounds]
            drain = statistics.median(f["drain"] for f in found)
            spread = (min(f["drain"] for f in found), max(f["drain"] for f in found))
            cells.append("%s %d: %.0f (%.0f to %.0f)" % (name(full), count, drain, *spread))
        return "Jobs per second of the reference, median (and range): " + ", ".join(cells) + "."

    def twice(self):
        for (key, full, count), found in self.each():
            if found["twice"]:
                text = "%s, %s, %d workers: %d jobs were handed out more than once"
                yield text % (self.labels[key], name(full), count, found["twice"])

    def busy(self):
        for (key, full, count), found in self.each():
            if found["busy"]:
                text = "%s, %s, %d workers: %d calls failed with a busy error and were repeated"
                yield text % (self.labels[key], name(full), count, found["busy"])

    def each(self):
        return self.rounds[-1].items() if self.rounds else ()

    def verdict(self, found):
        if found["before"] != found["after"]:
            return "accepted: %s -> %s" % (found["before"], found["after"])
        if found["answer"]:
            return "accepted, no trace: " + found["after"]
        return "refused: " + found["after"]

    def interleavings(self):
        rows = []
        for (key, same_name), (holding, finished, expires) in self.stale.items():
            names = {None: "none", False: "A, B", True: "both A"}[same_name]
            row = [self.labels[key], expires, names]
            rows.append(row + [self.verdict(holding), self.verdict(finished)])
        return table(["", "B gets the job by", "names", "A completes while B holds it",
                      "A completes after B finished"], rows)

    def text(self):
        parts = [self.speed(), self.absolute(), self.interleavings()]
        parts.append("\n".join("- %s: %s" % (self.labels[k], v) for k, v in self.versions.items()))
        notes = [*self.twice(), *self.busy(), *self.notes]
        notes += ["%s: not run: %s" % pair for pair in self.missing]
        if notes:
            parts.append("\n".join("- " + note for note in notes))
        return "\n\n".join(parts) + "\n"
