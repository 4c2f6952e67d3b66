"""Runs the contract vectors through the loaded extension: vectors.py EXTENSION VECTORS."""
import json
import sqlite3
import sys


def argument(value):
    return float(value["f"]) if isinstance(value, dict) else value


def perform(connection, operation, arguments):
    if operation == "sql":
        return [list(row) for row in connection.execute(arguments[0])]
    marks = ", ".join("?" * len(arguments))
    [[answer]] = connection.execute(
        f"SELECT fence_{operation}({marks})", [argument(a) for a in arguments]
    )
    if operation == "state" and answer is not None:
        return json.loads(answer)
    return answer


def jobs(connection):
    return list(connection.execute("SELECT * FROM jobs"))


def run(extension, vector):
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.enable_load_extension(True)
    connection.load_extension(extension)
    connection.execute("SELECT fence_init()").fetchone()
    for number, (operation, arguments, expected) in enumerate(vector["steps"]):
        place = f"{vector['name']} step {number}: {operation} {arguments}"
        before = jobs(connection)
        try:
            answer = perform(connection, operation, arguments)
        except sqlite3.OperationalError as error:
            assert expected == "!error", f"{place}: {error}"
            assert jobs(connection) == before, f"{place}: an error changed something"
        else:
            assert answer == expected, f"{place}: {answer}, expected {expected}"
    connection.close()


def main():
    extension, path = sys.argv[1:]
    with open(path, encoding="utf-8") as lines:
        vectors = [json.loads(line) for line in lines]
    for vector in vectors:
        run(extension, vector)
    print(len(vectors), "vectors passed")


main()
