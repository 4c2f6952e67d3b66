"""Plays the part of tests/hosts/host.c, which explains it, in Python: host.py MODULE EXTENSION.

MODULE is sqlite3 or apsw. Python's own sqlite3 runs as the documents advise, in autocommit.
"""
import importlib
import sys

module, extension = sys.argv[1:]
sqlite = importlib.import_module(module)
connections = {}


def connect(file):
    if module == "apsw":
        connection = sqlite.Connection(file)
        # Its methods had names without underscores before 3.42.
        older = getattr(connection, "enableloadextension", None)
        enable = getattr(connection, "enable_load_extension", older)
        load = getattr(connection, "load_extension", getattr(connection, "loadextension", None))
    else:
        connection = sqlite.connect(file, isolation_level=None, timeout=0)
        enable, load = connection.enable_load_extension, connection.load_extension
    enable(True)
    load(extension)
    return connection


def call(connection, sql, arguments):
    cursor = connection.cursor()
    return list(cursor.execute(sql, arguments))


READ = {"n": lambda text: None, "i": int, "r": float, "t": str}


def code(error):
    return getattr(error, "extendedresult", None) or getattr(error, "sqlite_errorcode", 1)


for line in sys.stdin:
    connection, sql, *arguments = line.rstrip("\n").split("\t")
    arguments = [READ[argument[0]](argument[2:]) for argument in arguments]
    try:
        if sql == ".open":
            connections[connection] = connect(*arguments)
        elif sql == ".close":
            connections.pop(connection).close()
        else:
            for row in call(connections[connection], sql, arguments):
                print("row", *["NULL" if value is None else value for value in row], sep="\t")
        print("ok")
    except sqlite.Error as error:
        print("error", code(error), error, sep="\t")
