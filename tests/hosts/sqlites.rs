//! SQLite in old versions: the source comes out of old releases of the crate libsqlite3-sys and is
//! compiled once, with `host.c` around it, into target/hosts.
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::common::{client, extension, stderr};
use crate::host::Host;

pub struct Sqlite {
    pub version: &'static str,
    /// The release of libsqlite3-sys that has it.
    krate: &'static str,
    pub json: bool,
    building: Mutex<()>,
}

const fn sqlite(version: &'static str, krate: &'static str, json: bool) -> Sqlite {
    Sqlite { version, krate, json, building: Mutex::new(()) }
}

/// Without RETURNING.
pub static TOO_OLD: Sqlite = sqlite("3.33.0", "0.20.1", true);

/// JSON functions were an option before 3.38.
pub static OLDEST: Sqlite = sqlite("3.35.4", "0.22.2", false);
pub static WITH_JSON: Sqlite = sqlite("3.37.0", "0.23.2", true);
pub static BETWEEN: [Sqlite; 2] =
    [sqlite("3.36.0", "0.23.0", true), sqlite("3.38.0", "0.24.0", true)];

/// Where clients and their parts are kept from one run to the next.
pub fn cache() -> PathBuf {
    let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/hosts");
    std::fs::create_dir_all(&cache).unwrap();
    cache
}

/// What cannot be had here: a person is told, CI fails.
pub fn missing<T>(what: &str, why: &str) -> Option<T> {
    let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!ci, "{what} cannot be had, and CI must not skip what needs it:\n{why}");
    eprintln!("NOT TESTED: {what} cannot be had here:\n{why}");
    None
}

impl Sqlite {
    pub fn host(&self) -> Option<Host> {
        let program = self.program()?;
        let name = format!("SQLite {}", self.version);
        Some(Host::new(&name, move || {
            let mut command = Command::new(&program);
            command.arg(extension());
            command
        }))
    }

    /// The path of the host that has this SQLite in it.
    pub fn program(&self) -> Option<PathBuf> {
        self.compiled("", &[])
    }

    /// The same, with `options` for the compiler, in files with `suffix`.
    pub fn compiled(&self, suffix: &str, options: &[&str]) -> Option<PathBuf> {
        let cc = client("cc")?;
        let _building = self.building.lock().unwrap_or_else(|e| e.into_inner());
        let folder = cache().join(format!("sqlite-{}", self.version));
        std::fs::create_dir_all(&folder).unwrap();
        let library = folder.join(format!("sqlite3{suffix}.o"));
        let program = folder.join(format!("host{suffix}"));
        let Some(source) = self.source(&folder) else {
            return missing(&format!("SQLite {}", self.version), "cargo cannot fetch its source");
        };
        if !library.exists() {
            let mut command = Command::new(&cc);
            command
                .args(options)
                .args(["-c", "-w", "-O0", "-D_GNU_SOURCE"])
                .arg(source.join("sqlite3.c"));
            if self.json {
                command.arg("-DSQLITE_ENABLE_JSON1");
            }
            compile(&mut command, &library);
        }
        let host = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hosts/host.c");
        let mut command = Command::new(&cc);
        command
            .args(options)
            .args(["-g", "-O0", "-Wall", "-D_GNU_SOURCE", "-I"])
            .arg(&source)
            .arg(host);
        compile(command.arg(&library).args(["-ldl", "-lpthread", "-lm"]), &program);
        Some(program)
    }

    /// Asks cargo for the crate by a project that depends on it.
    fn source(&self, folder: &Path) -> Option<PathBuf> {
        std::fs::create_dir_all(folder.join("src")).unwrap();
        std::fs::write(folder.join("src/lib.rs"), "").unwrap();
        let manifest = format!(
            "[package]\nname = \"source\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\n\
             [dependencies]\n\
             libsqlite3-sys = {{ version = \"={}\", default-features = false }}\n\n[workspace]\n",
            self.krate
        );
        std::fs::write(folder.join("Cargo.toml"), manifest).unwrap();
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--quiet", "--format-version=1"])
            .current_dir(folder)
            .output()
            .expect("cargo runs");
        if !output.status.success() {
            eprintln!("{}", stderr(&output));
            return None;
        }
        let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let package = metadata["packages"]
            .as_array()
            .unwrap()
            .iter()
            .find(|package| package["name"] == "libsqlite3-sys")
            .expect("the crate is a dependency");
        Some(Path::new(package["manifest_path"].as_str().unwrap()).with_file_name("sqlite3"))
    }
}

/// Compiles to a file of its own first: another run may do the same.
pub fn compile(command: &mut Command, target: &Path) {
    let fresh = target.with_extension(format!("{}.new", std::process::id()));
    let output = command.arg("-o").arg(&fresh).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    std::fs::rename(fresh, target).unwrap();
}
