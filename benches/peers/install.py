"""Puts everything that the comparison needs into target/peers. What cannot be had is said."""

import glob
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PROJECT = os.path.dirname(os.path.dirname(HERE))
TARGET = os.path.abspath(os.environ.get("CARGO_TARGET_DIR", os.path.join(PROJECT, "target")))
FOLDER = os.path.join(TARGET, "peers")

DEBIAN_PYTHON = "/usr/bin/python3"  # it can load extensions
FROM_PYPI = ["honker", "litequeue", "localqueue", "huey", "persist-queue"]
FROM_PYPI += ["psycopg[binary]", "redis"]
FROM_NPM = ["plainjob@0.0.14", "better-sqlite3@12"]  # 13 needs Node 22


class Missing(Exception):
    """Cannot be had here, and why."""


def say(*words):
    print(*words, flush=True, file=sys.stderr)


def run(*command, **options):
    """A command whose output matters only where it fails."""
    options = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    try:
        done = subprocess.run(command, **options)
    except OSError as e:
        raise Missing(str(e)) from e
    if done.returncode != 0:
        lines = done.stdout.strip().splitlines() or ["no output"]
        raise Missing("`%s` failed: %s" % (" ".join(command[:4]), lines[-1]))
    return done.stdout


def apt(*packages):
    if os.getuid() != 0:
        raise Missing("Debian's " + " ".join(packages) + " is missing, and only root may install")
    say("installing", *packages)
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    run("apt-get", "update", "-qq")
    run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages, env=env)


def need(found, *packages):
    if not found():
        apt(*packages)
        if not found():
            raise Missing("not there after installing " + " ".join(packages))


def program(name):
    return lambda: shutil.which(name)


def python():
    """A virtual environment; for each package that failed, the reason."""
    venv = os.path.join(FOLDER, "venv")
    binary = os.path.join(venv, "bin", "python")
    if not os.path.exists(os.path.join(venv, "bin", "pip")):
        need(lambda: glob.glob("/usr/lib/python3*/ensurepip"), "python3", "python3-venv")
        run(DEBIAN_PYTHON, "-m", "venv", venv)
    # honker is compiled here, with Rust and the system's SQLite.
    need(lambda: os.path.exists("/usr/include/sqlite3.h"), "libsqlite3-dev")
    failed = {}
    for package in FROM_PYPI:
        try:
            run(binary, "-m", "pip", "install", "-q", package)
        except Missing as e:
            failed[package.split("[")[0]] = str(e)
    return binary, failed


def node():
    need(program("node"), "nodejs")
    need(program("npm"), "npm")
    need(program("c++"), "build-essential")
    folder = os.path.join(FOLDER, "npm")
    os.makedirs(folder, exist_ok=True)
    binding = "node_modules/better-sqlite3/build/Release/better_sqlite3.node"
    if not os.path.exists(os.path.join(folder, binding)):
        say("installing", *FROM_NPM, "(compiles SQLite, some minutes)")
        with open(os.path.join(folder, "package.json"), "w") as file:
            file.write('{"private": true}\n')
        run("npm", "install", "--no-audit", "--no-fund", *FROM_NPM, cwd=folder)
    return folder


def extension():
    target = os.path.join(FOLDER, "extension")
    say("building the extension")
    features = ["--no-default-features", "--features", "loadable"]
    run("cargo", "build", "--release", "--target-dir", target, *features, cwd=PROJECT)
    return os.path.join(target, "release", "libfence")


def rust_store():
    say("building the worker of the Rust API")
    command = ["cargo", "build", "--release", "--target-dir", TARGET, "--example", "peers_store"]
    run(*command, cwd=PROJECT)
    return os.path.join(TARGET, "release", "examples", "peers_store")


def postgres():
    need(lambda: glob.glob("/usr/lib/postgresql/*/bin/postgres"), "postgresql")


def redis():
    need(program("redis-server"), "redis-server")


def goqite(checkout):
    """Debian's Go and SQLite driver; goqite itself from the folder `checkout`, or by Go's own
    client. The worker, the source's folder and its version."""
    driver = "/usr/share/gocode/src/github.com/mattn/go-sqlite3"
    need(program("go"), "golang-go")
    need(lambda: os.path.isdir(driver), "golang-github-mattn-go-sqlite3-dev")
    version = "from a given folder"
    if not checkout:
        checkout, version = fetch_goqite()
    path = os.path.join(FOLDER, "go")
    module = os.path.join(path, "src", "maragu.dev", "goqite")
    shutil.rmtree(module, ignore_errors=True)
    shutil.copytree(checkout, module)
    worker = os.path.join(path, "worker")
    env = dict(os.environ, GO111MODULE="off", GOPATH=path + ":/usr/share/gocode")
    run("go", "build", "-o", worker, os.path.join(HERE, "goqite", "main.go"), env=env)
    return worker, module, "goqite " + version


def fetch_goqite():
    folder = os.path.join(FOLDER, "go-module")
    os.makedirs(folder, exist_ok=True)
    if not os.path.exists(os.path.join(folder, "go.mod")):
        run("go", "mod", "init", "peers", cwd=folder)
    try:
        run("go", "get", "maragu.dev/goqite@latest", cwd=folder)
    except Missing:
        # The client's own sentence names hosts.
        raise Missing("`go get maragu.dev/goqite@latest` reached no Go module proxy") from None
    form = "{{.Dir}} {{.Version}}"
    return run("go", "list", "-m", "-f", form, "maragu.dev/goqite", cwd=folder).split()
