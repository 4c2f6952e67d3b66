//! The documents are run: every block of the README and every example of the reference prints
//! what it says, and the reference names exactly what loading adds.

mod common;

use common::docs::{self, blocks, Block, Part};
use common::{client, pipe, stderr, stdout, Scratch};
use std::path::Path;
use std::process::Command;

const README: &str = include_str!("../README.md");
const REFERENCE: &str = include_str!("../docs/reference.md");

fn of_language(markdown: &str, language: &str) -> Vec<Block> {
    blocks(markdown).into_iter().filter(|block| block.language == language).collect()
}

/// Runs a block of SQL and compares every statement's output with its comment.
fn check_sql(block: &Block) {
    let parts: Vec<Part> = docs::script(&block.text);
    let says = parts.iter().any(|part| !part.expected.is_empty());
    assert!(says, "{}: the example says of no statement what it prints", block.heading);
    let Some(outcomes) = docs::run_in_shell(&Scratch::new(), &parts) else { return };
    for (part, found) in parts.iter().zip(outcomes) {
        assert_eq!(found, part.expected, "{}: {}", block.heading, part.sql);
    }
}

/// Runs a program in the README's place and compares what it prints with its comments.
fn check_program(block: &Block, command: &mut Command, print: &str, comment: &str) {
    let scratch = Scratch::new();
    let expected = docs::printed(&block.text, print, comment);
    assert!(!expected.is_empty(), "{}: the program prints nothing", block.heading);
    let output = pipe(command.current_dir(docs::project_folder(&scratch)), &block.text);
    let found: Vec<String> = stdout(&output).lines().map(String::from).collect();
    assert_eq!(found, expected, "{}: {}", block.heading, stderr(&output));
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn the_readme_has_no_block_that_nobody_runs() {
    let mut count = 0;
    for block in blocks(README) {
        let run = ["sql", "sh", "python", "js", "rust"];
        assert!(run.contains(&block.language.as_str()), "{}: {}", block.heading, block.language);
        count += 1;
    }
    assert!(count >= 7, "the blocks of the README are not found");
    // Rust blocks are documentation tests of the library.
    assert!(include_str!("../src/lib.rs").contains("include_str!(\"../README.md\")"));
}

#[test]
fn the_readme_is_short() {
    assert!(README.lines().count() <= 200);
}

#[test]
fn the_sql_of_the_readme_prints_what_it_says() {
    let blocks = of_language(README, "sql");
    assert!(blocks[0].text.contains(".load target/release/libfence\n"));
    blocks.iter().for_each(check_sql);
}

#[test]
fn the_python_of_the_readme_prints_what_it_says() {
    let Some(python) = common::python() else { return };
    let blocks = of_language(README, "python");
    assert_eq!(blocks.len(), 2);
    for block in blocks {
        check_program(&block, &mut Command::new(&python), "print(", "  # ");
    }
}

#[test]
fn the_javascript_of_the_readme_prints_what_it_says() {
    let Some(modules) = docs::better_sqlite3() else { return };
    let blocks = of_language(README, "js");
    assert_eq!(blocks.len(), 1);
    for block in blocks {
        let mut node = Command::new(client("node").expect("found before"));
        node.arg("-").env("NODE_PATH", &modules);
        check_program(&block, &mut node, "console.log(", " // ");
    }
}

#[test]
fn the_commands_of_the_readme_are_those_that_the_tests_run() {
    let commands: Vec<String> = of_language(README, "sh")
        .iter()
        .flat_map(|block| block.text.lines().map(String::from).collect::<Vec<_>>())
        .collect();
    assert_eq!(
        commands,
        [
            // Run by `common::extension()` with its own target directory.
            "cargo build --release --no-default-features --features loadable",
            // Run here, in the profile of the tests.
            "cargo run --release --example stale_worker",
            // This is it.
            "cargo test",
        ]
    );
    assert!(common::extension().exists());
    let output = docs::example("stale_worker").output().unwrap();
    assert!(stdout(&output).ends_with("\nThe stale write was refused.\n"), "{}", stderr(&output));
    assert!(output.status.success());
}

#[test]
fn the_examples_of_the_reference_print_what_they_say() {
    let blocks = of_language(REFERENCE, "sql");
    assert!(blocks.len() >= 15, "the examples are not found");
    assert_eq!(blocks.len(), docs::blocks(REFERENCE).len(), "a block nobody runs");
    blocks.iter().for_each(check_sql);
}

/// The headings `### name(a, b)` of the reference; with `### Table ` in front for a table.
fn documented() -> Vec<&'static str> {
    REFERENCE.lines().filter_map(|line| line.strip_prefix("### ")).collect()
}

#[test]
fn the_reference_documents_exactly_what_loading_adds() {
    let (functions, tables) = docs::added_by_loading();
    let mut documented_functions: Vec<String> = documented()
        .iter()
        .filter(|heading| heading.starts_with("fence_"))
        .map(|heading| {
            let (name, arguments) = heading.strip_suffix(')').unwrap().split_once('(').unwrap();
            let count = arguments.split(", ").filter(|argument| !argument.is_empty()).count();
            format!("{name}/{count}")
        })
        .collect();
    documented_functions.sort();
    assert_eq!(documented_functions, functions);
    // A virtual table's heading lists its columns.
    let mut documented_tables: Vec<&str> = documented()
        .iter()
        .filter_map(|heading| heading.strip_prefix("Table ")?.split_once('('))
        .map(|(name, _)| name)
        .collect();
    documented_tables.sort_unstable();
    assert_eq!(documented_tables, tables);
}

#[test]
fn every_function_and_table_of_the_reference_has_an_example() {
    let sections = REFERENCE.split("\n### ").skip(1);
    let mut undecided: Vec<&str> = Vec::new();
    for section in sections {
        let heading = section.lines().next().unwrap();
        // Two forms of a function share a section.
        undecided.push(heading);
        if section.lines().all(|line| line == heading || line.is_empty()) {
            continue;
        }
        let calls: Vec<&str> =
            undecided.drain(..).filter(|heading| heading.starts_with("fence_")).collect();
        let example: String = of_language(&format!("{section}\n"), "sql")
            .iter()
            .map(|block| block.text.clone())
            .collect();
        assert!(!example.is_empty(), "{heading}: no example");
        for call in calls {
            let name = call.split('(').next().unwrap();
            assert!(example.contains(&format!("SELECT {name}(")), "{call} is in no example");
        }
    }
    assert!(undecided.is_empty());
}

#[test]
fn links_within_the_project_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for page in ["README.md", "CHANGELOG.md", "docs/reference.md", "docs/design.md"] {
        let text = std::fs::read_to_string(root.join(page)).unwrap();
        for (_, rest) in text.match_indices("](").map(|(at, _)| text[at..].split_at(2)) {
            let target = rest.split(')').next().unwrap();
            if target.starts_with("http") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = root.join(page).parent().unwrap().join(file);
            let path = if file.is_empty() { root.join(page) } else { path };
            assert!(path.exists(), "{page}: {target}");
            if !anchor.is_empty() {
                let text = std::fs::read_to_string(&path).unwrap();
                let found = text.lines().any(|line| anchor_of(line).as_deref() == Some(anchor));
                assert!(found, "{page}: {target}");
            }
            count += 1;
        }
    }
    assert!(count > 5, "the links are not found");
}

/// The anchor of a heading, as the usual hosts make it.
fn anchor_of(line: &str) -> Option<String> {
    let heading =
        line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#'))?;
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    Some(kept.collect::<String>().to_lowercase().replace(' ', "-"))
}
