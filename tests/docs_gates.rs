//! The gates of the page on gates refuse a stale worker: PostgreSQL and Redis are started, and run
//! the blocks of the page.

mod common;

use common::{client, docs, pipe, stderr, stdout, Scratch};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PAGE: &str = include_str!("../docs/gates.md");

fn block(language: &str) -> String {
    let mut found = docs::blocks(PAGE).into_iter().filter(|block| block.language == language);
    let block = found.next().expect("the page has the block");
    assert!(found.next().is_none(), "which of the blocks?");
    block.text
}

/// A server that ends with the test.
struct Server(Child);

impl Server {
    /// Starts it and asks until it answers.
    fn start(command: &mut Command, answers: impl Fn() -> bool) -> Server {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut server = Server(child);
        let deadline = Instant::now() + Duration::from_secs(60);
        while !answers() {
            assert_eq!(server.0.try_wait().unwrap(), None, "the server ended");
            assert!(Instant::now() < deadline, "the server does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server program of PostgreSQL, which Debian keeps out of PATH.
fn postgresql(program: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|version| version.path().join("bin").join(program));
    found.into_iter().find(|path| path.exists()).or_else(|| client(program))
}

/// PostgreSQL refuses to run as root.
fn unprivileged(program: &Path, folder: &Path) -> Command {
    const NOBODY: u32 = 65_534;
    let mut command = Command::new(program);
    if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
        std::os::unix::fs::chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
        command.uid(NOBODY).gid(NOBODY);
    }
    command.current_dir(folder);
    command
}

#[test]
fn the_gate_in_postgresql_refuses_the_stale_worker() {
    let (Some(initdb), Some(postgres)) = (postgresql("initdb"), postgresql("postgres")) else {
        return;
    };
    let Some(psql) = client("psql") else { return };
    let scratch = Scratch::new();
    let folder = scratch.dir.path();
    let made = unprivileged(&initdb, folder)
        .args(["--no-sync", "--auth=trust", "--username=test", "--locale=C", "--encoding=UTF8"])
        .args(["--pgdata", "data"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", stderr(&made));
    let ask = || {
        let mut ask = Command::new(&psql);
        ask.args(["--no-psqlrc", "--username=test", "--host"]).arg(folder).arg("postgres");
        ask
    };
    let answers = || {
        let mut probe = ask();
        probe.args(["--command", "SELECT 1"]).stdout(Stdio::null()).stderr(Stdio::null());
        probe.status().unwrap().success()
    };
    let mut server = unprivileged(&postgres, folder);
    server.args(["-D", "data", "-c", "listen_addresses=", "-c", "fsync=off", "-k"]).arg(folder);
    let _server = Server::start(&mut server, answers);

    let text = block("pgsql");
    let output = pipe(ask().args(["--set", "ON_ERROR_STOP=1"]), &text);
    assert!(output.status.success(), "{}", stderr(&output));
    let expected: Vec<String> =
        docs::script(&text).into_iter().flat_map(|part| part.expected).collect();
    assert_eq!(expected.len(), 3);
    let tags = stdout(&output);
    let found: Vec<&str> = tags.lines().filter(|line| line.starts_with("UPDATE")).collect();
    assert_eq!(found, expected);
    let rows = "SELECT r.text, g.fence FROM reports r JOIN fence_gate g ON r.id = g.resource";
    let output = ask().args(["--no-align", "--tuples-only", "--command", rows]).output().unwrap();
    assert_eq!(stdout(&output), "corrected|2\n");
}

#[test]
fn the_gate_in_redis_refuses_the_stale_worker() {
    let (Some(redis), Some(cli)) = (client("redis-server"), client("redis-cli")) else { return };
    let scratch = Scratch::new();
    let socket = scratch.dir.path().join("socket");
    let ask = |arguments: &[&str]| {
        let output = Command::new(&cli).arg("-s").arg(&socket).args(arguments).output().unwrap();
        stdout(&output).trim_end().to_owned()
    };
    let mut server = Command::new(redis);
    server.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket);
    server.current_dir(scratch.dir.path());
    let _server = Server::start(&mut server, || ask(&["PING"]) == "PONG");

    let script = scratch.dir.path().join("gate.lua");
    std::fs::write(&script, block("lua")).unwrap();
    let write =
        |fence, value| ask(&["--eval", script.to_str().unwrap(), "report", ",", fence, value]);
    assert_eq!(write("2", "written by B"), "1");
    assert_eq!(write("1", "written by A"), "0");
    assert_eq!(ask(&["HGET", "report", "value"]), "written by B");
    assert_eq!(write("2", "corrected"), "1");
    // As numbers, not as texts.
    assert_eq!(write("10", "written by C"), "1");
    assert_eq!(write("9", "written by a stale one"), "0");
    assert_eq!(ask(&["HGET", "report", "value"]), "written by C");
}
