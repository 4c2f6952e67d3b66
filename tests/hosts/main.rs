//! The hosts: the same library does the same in every SQLite that can load it, old and new, in
//! whatever language the program is written. All of them get the same calls, the contract vectors
//! among them, and must give the same answers.
#![cfg(unix)]
mod clients;
#[path = "../common/mod.rs"]
mod common;
mod host;
mod memory;
mod old_versions;
mod python;
mod sqlites;
mod tales;

#[test]
fn the_hosts_call_every_function() {
    let (functions, _) = common::docs::added_by_loading();
    let steps = tales::every_function_steps(std::path::Path::new("jobs.db"), true).steps;
    let sql: String = steps.iter().map(|step| format!("{}\n", step.line)).collect();
    assert!(functions.len() > 30);
    for function in functions {
        let (name, _) = function.split_once('/').unwrap();
        assert!(sql.contains(&format!("{name}(")), "{name} is not called");
    }
}
