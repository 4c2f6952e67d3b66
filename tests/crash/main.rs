//! Workers that die or fall asleep in the middle of anything. Children that enqueue, claim, renew,
//! complete, write a guarded table and purge at full speed are killed with SIGKILL at random
//! moments: what they were told stands, and their transactions happened or did not. Others are
//! stopped with SIGSTOP, lose their lease, and are refused when they wake up.
//!
//! The children are this program with other arguments, so it does without the usual harness.
mod acks;
mod acks_cases;
#[path = "../storm/broken.rs"]
mod broken;
mod child;
#[path = "../common/mod.rs"]
mod common;
#[path = "../storm/door.rs"]
mod door;
#[path = "../storm/harness.rs"]
mod harness;
mod kills;
mod pauses;

use child::Orders;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc::Sender;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("worker") => child::run(&Orders::read(&arguments[1..])),
        Some("sleeper") => child::sleep(&Orders::read(&arguments[1..])),
        _ => {
            let tests: Vec<harness::Test> =
                [&kills::TESTS[..], &pauses::TESTS, &acks_cases::TESTS].concat();
            return harness::run(&tests);
        }
    }
    ExitCode::SUCCESS
}

/// What a child said, by its number; None when it will say no more.
type Line = (usize, Option<String>);

/// A child process, killed at the latest when it goes out of scope.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
}

impl Process {
    /// Starts a child whose lines arrive with its number.
    fn start(role: &str, orders: &Orders, number: usize, lines: Sender<Line>) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg(role)
            .args(orders.arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines() {
                // The receiver may have given up.
                let _ = lines.send((number, Some(line.unwrap())));
            }
            let _ = lines.send((number, None));
        });
        let input = child.stdin.take();
        Process { child, input }
    }

    fn signal(&self, signal: i32) {
        // SAFETY: the child has not been waited for, so the number is still its own.
        let rc = unsafe { libc::kill(self.child.id() as i32, signal) };
        assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
    }

    /// Stops the process; on return it does nothing any more.
    fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let mut status = 0;
        // SAFETY: writes to the integer it is given. Being stopped takes no child away.
        let pid = unsafe { libc::waitpid(self.child.id() as i32, &mut status, libc::WUNTRACED) };
        assert!(pid > 0 && libc::WIFSTOPPED(status), "the child ended: {status}");
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        use std::os::unix::process::ExitStatusExt;
        let status = self.child.wait().unwrap();
        assert_eq!(status.signal(), Some(libc::SIGKILL), "the child ended by itself: {status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be dead.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
