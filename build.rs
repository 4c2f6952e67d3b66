//! Records the commit for `fence_debug()` and keeps the loaded library in memory.
use std::process::Command;

fn main() {
    let commit = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output()
        .ok()
        .filter(|out| out.status.success())
        .and_then(|out| String::from_utf8(out.stdout).ok());
    let commit = commit.as_deref().map_or("unknown", str::trim);
    println!("cargo:rustc-env=FENCE_COMMIT={commit}");
    println!("cargo:rerun-if-changed=build.rs");
    // HEAD's log grows with every commit, so the recorded one does not go stale.
    println!("cargo:rerun-if-changed=.git/logs/HEAD");

    // SQLite unloads a library whose entry point failed, but calls the destructors of the
    // functions that were registered before the failure when the connection closes.
    let unix_elf = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    if unix_elf && std::env::var_os("CARGO_FEATURE_LOADABLE").is_some() {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
