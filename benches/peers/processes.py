"""Worker processes: started, asked, ended."""

import json
import subprocess


class Unsupported(Exception):
    """The peer has no such setting."""


class Failed(Exception):
    """The peer answered with an error."""


class Worker:
    def __init__(self, arm, folder, full, ttl=600.0, name="w0", fresh=True, first=0, step=1):
        self.process = subprocess.Popen(
            arm.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=arm.env
        )
        options = dict(worker=name, fresh=fresh, first=first, step=step)
        try:
            self.facts = self.ask("open", folder=folder, full=full, ttl=ttl, **options)
        except BaseException:
            self.end()
            raise

    def send(self, command, **arguments):
        self.process.stdin.write(json.dumps(dict(arguments, do=command)) + "\n")
        self.process.stdin.flush()

    def receive(self):
        line = self.process.stdout.readline()
        if not line:
            raise Failed("the worker process ended with code %s" % self.process.wait())
        answer = json.loads(line)
        if "unsupported" in answer:
            raise Unsupported(answer["unsupported"])
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def ask(self, command, **arguments):
        self.send(command, **arguments)
        return self.receive()

    def end(self):
        """The end of its input ends it; whoever hangs is killed."""
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
