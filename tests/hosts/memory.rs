//! Memory: a checker looks on while a C host loads the library, calls it, is refused and closes.
use std::path::PathBuf;
use std::process::Command;

use crate::common::tier::scale;
use crate::common::{client, extension, stderr, stdout, Scratch};
use crate::host::{run, start, Host};
use crate::sqlites::{cache, Sqlite, OLDEST, TOO_OLD, WITH_JSON};
use crate::tales::{self, Tale};

/// No other exit code of the host.
const FOUND: i32 = 99;

fn valgrind(sqlite: &Sqlite) -> Option<Host> {
    let (valgrind, program) = (client("valgrind")?, sqlite.program()?);
    let name = format!("valgrind on SQLite {}", sqlite.version);
    Some(Host::new(&name, move || {
        let mut command = Command::new(&valgrind);
        command
            .args(["--quiet", "--leak-check=full", "--errors-for-leak-kinds=definite"])
            .args(["--show-leak-kinds=definite"])
            .arg(format!("--error-exitcode={FOUND}"))
            .arg(&program)
            .arg(extension());
        command
    }))
}

#[test]
fn valgrind_sees_no_wrong_access_and_no_leak() {
    let sqlites = [&WITH_JSON, &OLDEST];
    for sqlite in &sqlites[..scale(1, 2, 2)] {
        let Some(host) = valgrind(sqlite) else { return };
        tell_in_one_process(&host, sqlite.json);
    }
}

/// Connections that come and go, all kinds of answers, errors.
fn tell_in_one_process(host: &Host, json: bool) {
    let scratch = Scratch::new();
    let file = |name: &str| scratch.dir.path().join(name);
    let mut steps = tales::every_function_steps(&file("functions.db"), json).steps;
    steps.extend(tales::stale_worker_steps(&file("stale.db")).steps);
    steps.extend(tales::busy_steps(&file("busy.db")).steps);
    steps.extend(tales::vector_steps().steps);
    run(host, &steps);
}

#[test]
fn valgrind_sees_no_wrong_access_and_no_leak_in_a_host_that_is_too_old() {
    let Some(host) = valgrind(&TOO_OLD) else { return };
    let mut tale = Tale::default();
    tale.fails(0, ".open\tt::memory:", 1, "sqlite-fence needs SQLite 3.35 or newer");
    tale.close(0);
    run(&host, &tale.steps);
}

/// What the host does on purpose, and what a checker says of it.
fn misuse(host: &Host, line: &str) -> (Option<i32>, String) {
    let scratch = Scratch::new();
    let output = start(&mut host.command(), &format!("0\t{line}\n"), scratch.dir.path());
    (output.status.code(), stderr(&output))
}

#[test]
fn valgrind_sees_a_leak_and_a_read_of_freed_memory_where_there_is_one() {
    let Some(host) = valgrind(&WITH_JSON) else { return };
    for (line, sentence) in
        [(".leak", "definitely lost"), (".read_freed", "Invalid read of size 1")]
    {
        let (code, said) = misuse(&host, line);
        assert!(code == Some(FOUND) && said.contains(sentence), "{line}: {code:?} {said}");
    }
}

/// The extension with every access checked. The compiler's switch is not stable, hence the
/// variable that allows it.
fn sanitized_extension() -> PathBuf {
    let rustc = Command::new("rustc").arg("-vV").output().unwrap();
    let said = stdout(&rustc);
    let target = said.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let folder = cache().join("sanitized");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--no-default-features", "--features", "loadable"])
        .args(["--target", target, "--target-dir"])
        .arg(&folder)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", "-Zsanitizer=address")
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", stderr(&built));
    let library = folder.join(target).join("debug/libfence.so");
    let bytes = std::fs::read(&library).unwrap();
    let report = b"__asan_report_load8";
    assert!(bytes.windows(report.len()).any(|window| window == report), "nothing is checked");
    library
}

#[test]
fn the_address_sanitizer_sees_no_wrong_access_and_no_leak() {
    if !scale(false, true, true) {
        eprintln!("not in the fast tier");
        return;
    }
    let Some(program) = WITH_JSON.compiled("-sanitized", &["-fsanitize=address"]) else { return };
    let library = sanitized_extension();
    let host = Host::new("address sanitizer", move || {
        let mut command = Command::new(&program);
        command.arg(&library).env("ASAN_OPTIONS", format!("exitcode={FOUND}:detect_leaks=1"));
        command
    });
    tell_in_one_process(&host, true);
    for (line, sentence) in [(".leak", "detected memory leaks"), (".read_freed", "use-after-free")]
    {
        let (code, said) = misuse(&host, line);
        assert!(code == Some(FOUND) && said.contains(sentence), "{line}: {code:?} {said}");
    }
}
