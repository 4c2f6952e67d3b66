"""Calls every function, closes, and prints the database's files before and after.

Usage: close.py EXTENSION DATABASE CALL...
"""
import os
import sqlite3
import sys

extension, database, *calls = sys.argv[1:]


def files():
    folder, name = os.path.split(database)
    return " ".join(sorted(f for f in os.listdir(folder) if f.startswith(name)))


conn = sqlite3.connect(database, isolation_level=None)
conn.enable_load_extension(True)
conn.load_extension(extension)
conn.execute("PRAGMA journal_mode = wal").fetchall()
for call in (
    "fence_init()",
    "fence_enqueue('free')",
    "fence_enqueue('held')",
    "fence_claim('held', 'a', 0, 9e9)",
    *calls,
    "fence_state('held')",
):
    conn.execute("SELECT " + call).fetchall()
print(files())
conn.close()
print(files())
