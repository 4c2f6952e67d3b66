"""Runs the contract vectors and the claim_many cases through examples/python/service.py.

Arguments: the folder of service.py, the vectors. Prints the number of vectors that passed.
"""

import contextlib
import json
import os
import sqlite3
import sys
import tempfile
import threading

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import service  # noqa: E402


def number(value):
    """{"f": "NaN"} in a vector is that float."""
    return float(value["f"]) if isinstance(value, dict) else value


def rows(path):
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT * FROM jobs ORDER BY rowid").fetchall()


def step(path, operation, arguments, expected):
    if operation == "sql":
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
            found = [list(row) for row in db.execute(*arguments).fetchall()]
        assert found == expected, (found, expected)
        return
    call = getattr(service, operation)
    if expected == "!error":
        before = rows(path)
        try:
            answer = call(path, *map(number, arguments))
        except ValueError:
            assert rows(path) == before, "the refused call changed something"
        else:
            raise AssertionError("no ValueError but %r" % (answer,))
        return
    answer = call(path, *map(number, arguments))
    assert answer == expected and type(answer) is type(expected), (answer, expected)


def vectors(folder, file):
    count = 0
    with open(file, encoding="utf-8") as lines:
        for line in lines:
            vector = json.loads(line)
            path = os.path.join(folder, "vector%d.db" % count)
            service.init_db(path)
            for number, (operation, arguments, expected) in enumerate(vector["steps"]):
                try:
                    step(path, operation, arguments, expected)
                except Exception as e:
                    raise AssertionError("%s, step %d" % (vector["name"], number)) from e
            count += 1
    return count


def refuses(call, *arguments):
    try:
        call(*arguments)
    except ValueError as e:
        return str(e)
    raise AssertionError("no ValueError")


def claim_many(folder):
    path = os.path.join(folder, "many's #1?.db")  # a name that a careless URI would cut
    service.init_db(path)
    service.init_db(path)
    assert service.enqueue(path, "a") is True

    owners = ["worker-%d" % i for i in range(64)]
    answers = service.claim_many(path, "a", owners, 0, 10)
    assert len(answers) == 64
    assert [answer for answer in answers if answer is not None] == [1]
    # In input order: the place of the fence is the place of the owner in the row.
    assert service.state(path, "a")["owner"] == owners[answers.index(1)]

    assert service.claim_many(path, "a", [], 10, 10) == []
    assert service.claim_many(path, "a", owners, 9, 10) == [None] * 64

    answers = service.claim_many(path, "a", ["same", "same"], 10, 10)
    assert sorted(answers, key=str) == [2, None], answers

    # One owner's error is in its own place and the winner is known all the same.
    answers = service.claim_many(path, "a", ["", "A", None], 20, 10)
    assert answers[1] == 3, answers
    assert str(answers[0]) == "fence_claim: owner must not be empty", answers
    assert str(answers[2]) == "fence_claim: owner must be text, got NULL", answers
    assert type(answers[0]) is type(answers[2]) is ValueError

    before = rows(path)
    for arguments, sentence in [
        (("a", ["A"], 30, 0), "fence_claim: ttl must be greater than 0, got 0"),
        (("a", [], 30, -1), "fence_claim: ttl must be greater than 0, got -1"),
        (("", ["A"], 30, 10), "fence_claim: id must not be empty"),
        (("a", ["A"], float("nan"), 10), "fence_claim: now must be a number, got NULL"),
    ]:
        assert refuses(service.claim_many, path, *arguments) == sentence
    assert rows(path) == before


def errors(folder):
    # A bad argument is reported before the file is looked for.
    missing = os.path.join(folder, "missing.db")
    assert "ttl must be greater than 0" in refuses(service.claim, missing, "a", "A", 0, 0)
    refuses(service.claim, missing, "a", "A", 2**70, 1)
    refuses(service.claim, missing, "a", "A", [], 1)
    refuses(service.enqueue, missing, "\ud800")
    try:
        service.claim(missing, "a", "A", 0, 1)
    except sqlite3.OperationalError as e:
        assert str(e) == "unable to open database file", e
    else:
        raise AssertionError("claimed in a file that is not there")
    assert not os.path.exists(missing)

    # Busy is an error, neither None nor a bad argument, and changes nothing.
    path = os.path.join(folder, "busy.db")
    service.init_db(path)
    service.enqueue(path, "a")
    before = rows(path)
    service.BUSY_TIMEOUT = 0.01
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        try:
            service.claim(path, "a", "A", 0, 10)
        except sqlite3.OperationalError as e:
            assert str(e) == "fence_claim: database is locked", e
        else:
            raise AssertionError("claimed while another connection held the lock")
        answers = service.claim_many(path, "a", ["A", "B"], 0, 10)
        assert [type(answer) for answer in answers] == [sqlite3.OperationalError] * 2, answers
        other.execute("ROLLBACK")
    service.BUSY_TIMEOUT = 5.0
    assert rows(path) == before


def connection():
    """What a program gets that asks for a connection of its own."""
    service.BUSY_TIMEOUT = 0.25
    with contextlib.closing(service.connect(":memory:")) as db:
        assert db.execute("PRAGMA busy_timeout").fetchall() == [(250,)]
        assert db.execute("PRAGMA synchronous").fetchall() == [(3,)]
        db.execute("CREATE TABLE t(x)")
        db.execute("INSERT INTO t VALUES (1)")
        assert not db.in_transaction
        try:
            db.execute("SELECT load_extension('anything')")
        except sqlite3.OperationalError as e:
            assert str(e) == "not authorized", e
        else:
            raise AssertionError("SQL can still load extensions")
    service.BUSY_TIMEOUT = 5.0


with tempfile.TemporaryDirectory() as folder:
    passed = vectors(folder, sys.argv[2])
    claim_many(folder)
    errors(folder)
    connection()
    # Every connection was closed and no thread is left.
    held = {os.readlink(fd.path) for fd in os.scandir("/proc/self/fd") if os.path.exists(fd.path)}
    assert not {name for name in held if name.startswith(folder)}, held
    assert threading.active_count() == 1
print(passed)
