"""Two SQLite libraries in one process: two_libraries.py EXTENSION DATABASE FIRST SECOND.

FIRST and SECOND are the modules sqlite3 and apsw, in the order in which they load the extension.
Prints what happens.
"""
import importlib
import sys

extension, database, first, second = sys.argv[1:]


def connect(module):
    if module == "apsw":
        connection = importlib.import_module(module).Connection(database)
    else:
        connection = importlib.import_module(module).connect(database, isolation_level=None)
    connection.enable_load_extension(True)
    return connection


def call(connection, sql):
    return list(connection.cursor().execute(sql))[0][0]


def attempt(action):
    try:
        return action()
    except Exception as error:  # the two libraries have errors of their own
        return error


# Both are open before either loads, and the second one's version is not the first one's.
ours, theirs = connect(first), connect(second)
print("versions differ:", call(ours, "SELECT sqlite_version()") != call(theirs, "SELECT sqlite_version()"))
print("first:", attempt(lambda: ours.load_extension(extension)))
for _ in range(2):
    print("second:", attempt(lambda: theirs.load_extension(extension)))
print("second:", attempt(lambda: call(theirs, "SELECT fence_version()")))
print("first:", *[
    call(ours, "SELECT " + sql)
    for sql in ("fence_init()", "fence_enqueue('a')", "fence_claim('a', 'A', 0, 10)")
])
another = connect(first)
print("first, another connection:", attempt(lambda: another.load_extension(extension)))
print("first, another connection:", call(another, "SELECT fence_complete('a', 'A', 1, 1, 'r')"))
theirs.close()
print("first:", call(ours, "SELECT fence_check('a', 'A', 1, 1)"))
another.close()
ours.close()
