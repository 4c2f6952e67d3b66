//! Other languages, each with its usual client, as the documents advise to use it.
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::docs::better_sqlite3;
use crate::common::{client, extension, stderr, stdout};
use crate::host::Host;
use crate::sqlites::{cache, missing};
use crate::tales;

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

/// A program together with a module of it, which is there if these arguments succeed.
fn with_module(program: &str, module: &str, probe: &[&str]) -> Option<PathBuf> {
    let program = client(program)?;
    let output = Command::new(&program).args(probe).output().unwrap();
    if output.status.success() {
        return Some(program);
    }
    missing(&format!("{module} for {}", program.display()), &stderr(&output))
}

fn php() -> Option<PathBuf> {
    let probe = "exit(class_exists('SQLite3') ? 0 : 1);";
    with_module("/usr/bin/php", "SQLite3", &["-r", probe])
}

fn php_script(php: &Path, name: &str) -> Command {
    let extension = extension();
    let mut command = Command::new(php);
    command
        .arg("-d")
        .arg(format!("sqlite3.extension_dir={}", extension.parent().unwrap().display()))
        .arg(script(name))
        .arg(extension.file_name().unwrap());
    command
}

#[test]
fn php_does_everything_by_query_single() {
    let Some(php) = php() else { return };
    tales::tell_all(&Host::new("PHP", move || php_script(&php, "host.php")));
}

/// What the documents warn of: a statement that is executed twice tells the winner of the claim
/// that he lost.
#[test]
fn php_executes_a_call_twice_by_query_and_fetch_array() {
    let Some(php) = php() else { return };
    let output = php_script(&php, "double.php").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(
        stdout(&output),
        "querySingle: told 1, fence 1\n\
         query and fetchArray: told NULL, fence 1\n\
         prepare, execute and fetchArray: told NULL, fence 1\n\
         exec: told true, fence 1\n"
    );
}

#[test]
fn perl_does_everything_with_arguments_bound_as_text() {
    let Some(perl) = with_module("/usr/bin/perl", "DBD::SQLite", &["-MDBD::SQLite", "-e1"]) else {
        return;
    };
    tales::tell_all(&Host::new("Perl", move || {
        let mut command = Command::new(&perl);
        command.arg(script("host.pl")).arg(extension());
        command
    }));
}

#[test]
fn tcl_does_everything() {
    let Some(tclsh) = client("/usr/bin/tclsh") else { return };
    let host = Host::new("Tcl", move || {
        let mut command = Command::new(&tclsh);
        command.arg(script("host.tcl")).arg(extension());
        command
    });
    // `db errorcode` knows no extended codes.
    tales::tell_all(&host.with_primary_codes());
}

#[test]
fn node_with_better_sqlite3_does_everything_with_numbers_bound_as_real() {
    let Some(modules) = better_sqlite3() else { return };
    let node = client("node").expect("found before");
    tales::tell_all(&Host::new("Node", move || {
        let mut command = Command::new(&node);
        command.arg(script("host.js")).arg(extension()).env("NODE_PATH", &modules);
        command
    }));
}

#[test]
fn go_does_everything() {
    let Some(go) = client("go") else { return };
    let program = cache().join("go-host");
    let output = Command::new(go)
        .args(["build", "-o"])
        .arg(&program)
        .arg(script("host.go"))
        // Debian's packages instead of modules.
        .env("GO111MODULE", "off")
        .env("GOPATH", "/usr/share/gocode")
        .env("GOFLAGS", "")
        .env("GOCACHE", cache().join("go-cache"))
        .output()
        .unwrap();
    if !output.status.success() {
        missing::<()>("github.com/mattn/go-sqlite3 for go", &stderr(&output));
        return;
    }
    tales::tell_all(&Host::new("Go", move || {
        let mut command = Command::new(&program);
        command.arg(extension());
        command
    }));
}
