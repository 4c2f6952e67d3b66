"""Who is compared, and how a worker process of each is started."""

import os

import install

HERE = install.HERE


class Arm:
    def __init__(self, key, label, command, **env):
        self.key, self.label, self.command = key, label, command
        self.env = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", **env)
        self.share = 0.05 if key == "naive" else 1.0  # of the jobs: less where they take long


REFERENCE = "by_hand"
PYTHON = [
    ("by_hand", "Python by hand, kept connection", None),
    ("fence_next", "sqlite-fence from Python, claim_batch of 1", None),
    ("by_hand_by_id", "Python by hand, by id", None),
    ("fence_by_id", "sqlite-fence from Python, by id", None),
    ("naive", "Python by hand, opening per call", None),
    ("honker", "honker", "honker"),
    ("litequeue", "litequeue", "litequeue"),
    ("localqueue", "localqueue", "localqueue"),
    ("huey", "huey, SqliteHuey", "huey"),
    ("persist_queue", "persist-queue, SQLiteAckQueue", "persist-queue"),
]
NODE = [("by_hand", "better-sqlite3 by hand"), ("plainjob", "plainjob")]
SERVERS = [
    ("postgres", "PostgreSQL, SKIP LOCKED by hand", "psycopg"),
    ("redis", "Redis, Lua by hand", "redis"),
]


def collect(servers, goqite_checkout):
    """The arms that can run, and for the others their label and the reason."""
    arms, missing = [], []

    def attempt(label, make):
        try:
            made = make()
            arms.append(made) if isinstance(made, Arm) else arms.extend(made)
        except Exception as e:
            missing.append((label, str(e)))

    binary, failed = install.python()
    library = install.extension()

    def python_arm(key, label, package, **env):
        if package in failed:
            raise install.Missing(failed[package])
        command = [binary, os.path.join(HERE, "worker.py"), key]
        return Arm(key, label, command, PEERS_FENCE=library, **env)

    def node_arms():
        packages = install.node()
        worker = os.path.join(HERE, "node", "worker.mjs")
        return [
            Arm("node_" + key, label, ["node", worker, key], PEERS_NPM=packages)
            for key, label in NODE
        ]

    def server_arm(key, label, package):
        getattr(install, key)()
        return python_arm(key, label, package, **servers(key))

    for key, label, package in PYTHON[:4]:
        attempt(label, lambda: python_arm(key, label, package))
    label = "sqlite-fence, Rust Store"
    attempt(label, lambda: Arm("rust_store", label, [install.rust_store()]))
    for key, label, package in PYTHON[4:]:
        attempt(label, lambda: python_arm(key, label, package))
    attempt("plainjob, better-sqlite3 by hand", node_arms)

    def goqite_arm():
        worker, source, version = install.goqite(goqite_checkout)
        env = dict(PEERS_GOQITE=source, PEERS_GOQITE_VERSION=version)
        return Arm("goqite", "goqite", [worker], **env)

    attempt("goqite", goqite_arm)
    for key, label, package in SERVERS:
        attempt(label, lambda: server_arm(key, label, package))
    return arms, missing
