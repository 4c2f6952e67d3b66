"""PostgreSQL and Redis on loopback, on data directories of their own, ended with the run."""

import glob
import os
import shutil
import socket
import subprocess
import time


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(port, process, log):
    for _ in range(200):
        if process.poll() is not None:
            break
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    with open(log) as file:
        raise RuntimeError("the server did not start: " + file.read()[-300:])


def start(command, port, log):
    with open(log, "w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
    try:
        wait_for(port, process, log)
    except BaseException:
        stop(process)
        raise
    return process


def stop(process):
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def postgres(folder):
    """The process and what psycopg connects to. PostgreSQL refuses to run as root."""
    programs = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
    data = os.path.join(folder, "postgres")
    as_user = []
    os.makedirs(data)
    os.chmod(data, 0o700)
    if os.getuid() == 0:
        shutil.chown(data, "postgres", "postgres")
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
    initdb = [programs + "/initdb", "-D", data, "-U", "postgres", "-A", "trust"]
    subprocess.run(as_user + initdb, check=True, stdout=subprocess.DEVNULL, cwd="/")
    port = free_port()
    settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "port=%d" % port]
    command = as_user + [programs + "/postgres", "-D", data]
    for setting in settings:
        command += ["-c", setting]
    process = start(command, port, os.path.join(folder, "postgres.log"))
    return process, "host=127.0.0.1 port=%d user=postgres dbname=postgres" % port


def redis(folder):
    data = os.path.join(folder, "redis")
    os.makedirs(data)
    port = free_port()
    command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--dir", data]
    command += ["--appendonly", "yes", "--save", ""]
    return start(command, port, os.path.join(folder, "redis.log")), str(port)
