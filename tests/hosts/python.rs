//! Python: Debian's sqlite3 module, apsw from 3.39 on, each with a SQLite of its own, and both
//! in one process.
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::common::tier::scale;
use crate::common::{extension, python, stderr, stdout, Scratch};
use crate::host::{run, Host};
use crate::sqlites::{cache, missing};
use crate::tales::{self, Tale};

/// The releases of apsw with a wheel for Debian's Python; the last one of each minor version
/// of SQLite stands first in its line.
const APSW: [&[&str]; 15] = [
    &["3.54.1.0", "3.54.0.0"],
    &["3.39.4.0", "3.39.3.0", "3.39.2.1"],
    &["3.40.1.0", "3.40.0.0"],
    &["3.41.2.0", "3.41.0.0"],
    &["3.42.0.1", "3.42.0.0"],
    &["3.43.2.0", "3.43.1.1", "3.43.1.0", "3.43.0.0"],
    &["3.44.2.0", "3.44.0.0"],
    &["3.45.3.0", "3.45.2.0", "3.45.1.0", "3.45.0.0"],
    &["3.46.1.0", "3.46.0.1", "3.46.0.0"],
    &["3.47.2.0", "3.47.1.0", "3.47.0.0"],
    &["3.48.0.0"],
    &["3.49.2.0", "3.49.1.0", "3.49.0.0"],
    &["3.50.4.0", "3.50.3.0", "3.50.2.0", "3.50.1.0", "3.50.0.0"],
    &["3.51.3.0", "3.51.2.0", "3.51.1.0", "3.51.0.0"],
    &["3.53.4.0", "3.53.3.1", "3.53.2.0", "3.53.1.0", "3.53.0.0"],
];

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

/// The folder with this release of apsw.
fn apsw(version: &str) -> Option<PathBuf> {
    static INSTALLING: Mutex<()> = Mutex::new(());
    let python = python()?;
    let _installing = INSTALLING.lock().unwrap_or_else(|e| e.into_inner());
    let folder = cache().join(format!("apsw-{version}"));
    if !folder.exists() {
        let fresh = cache().join(format!("apsw-{version}.{}.new", std::process::id()));
        let output = Command::new(python)
            .args(["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:"])
            .args(["--disable-pip-version-check", "--no-compile", "--root-user-action=ignore"])
            .arg("--target")
            .arg(&fresh)
            .arg(format!("apsw=={version}"))
            .output()
            .unwrap();
        if !output.status.success() {
            return missing(&format!("apsw {version}"), &stderr(&output));
        }
        // Another run may have been quicker.
        if std::fs::rename(&fresh, &folder).is_err() {
            std::fs::remove_dir_all(fresh).unwrap();
        }
    }
    Some(folder)
}

fn host(module: &'static str, folder: PathBuf) -> Option<Host> {
    let python = python()?;
    let name = format!("{module} of {}", folder.display());
    Some(Host::new(&name, move || {
        let mut command = Command::new(&python);
        command.arg(script("host.py")).arg(module).arg(extension()).env("PYTHONPATH", &folder);
        command
    }))
}

#[test]
fn apsw_does_everything_from_3_39_to_the_newest() {
    let last = APSW.iter().map(|line| line[0]);
    let versions: Vec<&str> = scale(
        last.clone().take(1).chain(["3.39.2.1"]).collect(),
        last.chain(["3.39.2.1"]).collect(),
        APSW.concat(),
    );
    for version in &versions {
        let Some(folder) = apsw(version) else { return };
        let host = host("apsw", folder).unwrap();
        let mut tale = Tale::default();
        tale.open(0, Path::new(":memory:"));
        let sqlite = version.rsplit_once('.').unwrap().0;
        tale.says(0, "SELECT sqlite_version()", sqlite);
        tale.close(0);
        run(&host, &tale.steps);
        tales::tell_all(&host);
    }
    println!("apsw: {}", versions.join(", "));
}

#[test]
fn the_module_of_debians_python_does_everything() {
    let Some(host) = host("sqlite3", PathBuf::new()) else { return };
    tales::tell_all(&host);
}

#[test]
fn of_two_sqlite_libraries_in_a_process_the_second_is_refused_and_the_first_goes_on() {
    let (Some(python), Some(folder)) = (python(), apsw(APSW[0][0])) else { return };
    let in_use = "sqlite-fence is in use by another SQLite library of this process; use one of \
                  the two, or two processes";
    for order in [["sqlite3", "apsw"], ["apsw", "sqlite3"]] {
        let scratch = Scratch::new();
        let output = Command::new(&python)
            .arg(script("two_libraries.py"))
            .arg(extension())
            .arg(scratch.db())
            .args(order)
            .env("PYTHONPATH", &folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let expected = [
            "versions differ: True",
            "first: None",
            &format!("second: {in_use}"),
            &format!("second: {in_use}"),
            "second: no such function: fence_version",
            "first: 1 1 1",
            "first, another connection: None",
            "first, another connection: 1",
            "first: done_by_you",
        ];
        // apsw names the kind of an error.
        let found =
            stdout(&output).replace("ExtensionLoadingError: ", "").replace("SQLError: ", "");
        let found = found.replace("error during initialization: ", "");
        let found: Vec<_> = found.lines().collect();
        assert_eq!(found, expected, "{order:?}");
        assert_eq!(scratch.files(), ["jobs.db"]);
    }
}
