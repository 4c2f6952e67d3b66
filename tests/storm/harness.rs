//! The part of the usual test harness that is needed by a test program which also is its own
//! worker: names, filters, `--list`, one line a test and the closing result.
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::process::ExitCode;
use std::time::Instant;

pub type Test = (&'static str, fn());

pub fn run(tests: &[Test]) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Selection { list, ignored, exact, filters, skipped } = Selection::of(&arguments);
    let matches = |name: &str, filter: &String| {
        if exact {
            name == filter
        } else {
            name.contains(filter.as_str())
        }
    };
    let chosen: Vec<&Test> = tests
        .iter()
        .filter(|_| !ignored)
        .filter(|(name, _)| filters.is_empty() || filters.iter().any(|f| matches(name, f)))
        .filter(|(name, _)| !skipped.iter().any(|f| matches(name, f)))
        .collect();
    if list {
        chosen.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", chosen.len());
    let (start, mut failed) = (Instant::now(), Vec::new());
    for (name, test) in &chosen {
        let outcome = catch_unwind(AssertUnwindSafe(test));
        println!("test {name} ... {}", if outcome.is_ok() { "ok" } else { "FAILED" });
        if outcome.is_err() {
            failed.push(*name);
        }
    }
    if !failed.is_empty() {
        println!("\nfailures:\n    {}", failed.join("\n    "));
    }
    println!(
        "\ntest result: {}. {} passed; {} failed; 0 ignored; 0 measured; {} filtered out; \
         finished in {:.2}s\n",
        if failed.is_empty() { "ok" } else { "FAILED" },
        chosen.len() - failed.len(),
        failed.len(),
        tests.len() - chosen.len(),
        start.elapsed().as_secs_f64()
    );
    ExitCode::from(if failed.is_empty() { 0 } else { 101 })
}

struct Selection {
    list: bool,
    ignored: bool,
    exact: bool,
    filters: Vec<String>,
    skipped: Vec<String>,
}

impl Selection {
    fn of(arguments: &[String]) -> Self {
        let (mut filters, mut skipped) = (Vec::new(), Vec::new());
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--skip" => skipped.extend(rest.next().cloned()),
                "--test-threads" | "--format" | "--color" | "--logfile" | "-Z" => {
                    rest.next();
                }
                flag if flag.starts_with('-') => {}
                filter => filters.push(filter.to_owned()),
            }
        }
        let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
        let (list, ignored, exact) = (has("--list"), has("--ignored"), has("--exact"));
        Selection { list, ignored, exact, filters, skipped }
    }
}
