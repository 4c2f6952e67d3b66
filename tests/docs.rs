//! The documents are run: every block of the README and every example of the other pages prints
//! what it says, and the pages name exactly what loading adds and what a file holds.

mod common;

use common::docs::{self, arity_called, blocks, Block, Part};
use common::{client, one, pipe, stderr, stdout, Scratch};
use std::path::Path;
use std::process::Command;

const README: &str = include_str!("../README.md");
const REFERENCE: &str = include_str!("../docs/reference.md");
const QUEUES: &str = include_str!("../docs/queues.md");
const STORAGE: &str = include_str!("../docs/storage.md");
const GATES: &str = include_str!("../docs/gates.md");
const CALLS: &str = include_str!("../docs/calls.md");

/// Where functions and tables are described, one section each.
const PAGES: [&str; 5] = [REFERENCE, QUEUES, STORAGE, GATES, CALLS];

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
    assert!(count >= 9, "the blocks of the README are not found");
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
fn the_python_of_the_readme_and_of_the_gates_prints_what_it_says() {
    let Some(python) = common::python() else { return };
    let mut blocks = of_language(README, "python");
    blocks.extend(of_language(GATES, "python"));
    assert_eq!(blocks.len(), 3);
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
fn the_examples_of_the_pages_print_what_they_say() {
    let mut count = 0;
    for page in PAGES {
        let blocks = of_language(page, "sql");
        blocks.iter().for_each(check_sql);
        count += blocks.len();
    }
    assert!(count >= 35, "the examples are not found");
}

#[test]
fn the_pages_have_no_block_that_nobody_runs() {
    for page in PAGES {
        for block in blocks(page) {
            let elsewhere: &[&str] = match page == GATES {
                // Run above, and in docs_gates.rs.
                true => &["python", "pgsql", "lua"],
                false => &[],
            };
            let language = block.language.as_str();
            assert!(language == "sql" || elsewhere.contains(&language), "{}", block.heading);
        }
    }
}

/// The headings `### name(a, b)`, `### Table name` and `### Table function name(a, b)`.
fn documented() -> Vec<&'static str> {
    let lines = PAGES.iter().flat_map(|page| page.lines());
    lines.filter_map(|line| line.strip_prefix("### ")).collect()
}

/// `### name(a, b)` as `name/2`.
fn name_and_arity(heading: &str) -> String {
    let (name, arguments) = heading.strip_suffix(')').unwrap().split_once('(').unwrap();
    let count = arguments.split(", ").filter(|argument| !argument.is_empty()).count();
    format!("{name}/{count}")
}

#[test]
fn the_pages_document_exactly_what_loading_adds() {
    let (functions, tables) = docs::added_by_loading();
    let headings = documented();
    let mut described: Vec<String> = headings
        .iter()
        .filter(|heading| heading.starts_with("fence_"))
        .map(|heading| name_and_arity(heading))
        .collect();
    described.sort();
    assert_eq!(described, functions);
    // The heading of a virtual table lists its columns, that of a table function its arguments.
    let mut described: Vec<&str> = headings
        .iter()
        .filter_map(|heading| heading.strip_prefix("Table ")?.split_once('('))
        .map(|(name, _)| name.strip_prefix("function ").unwrap_or(name))
        .collect();
    described.sort_unstable();
    assert_eq!(described, tables);
}

#[test]
fn every_function_and_table_has_an_example_with_all_its_arities() {
    let mut seen = 0;
    // Forms of one function share a section.
    let mut open: Vec<&str> = Vec::new();
    for section in PAGES.iter().flat_map(|page| page.split("\n### ").skip(1)) {
        let heading = section.lines().next().unwrap();
        open.push(heading);
        if section.lines().all(|line| line == heading || line.is_empty()) {
            continue;
        }
        let example: String = of_language(&format!("{section}\n"), "sql")
            .iter()
            .map(|block| block.text.clone())
            .collect();
        assert!(!example.is_empty(), "{heading}: no example");
        for call in open.drain(..) {
            if call.starts_with("fence_") {
                let found = arity_called(&example, &name_and_arity(call));
                assert!(found, "{call} is in no example");
                seen += 1;
            } else if let Some(function) = call.strip_prefix("Table function ") {
                let (name, _) = function.split_once('(').unwrap();
                for arguments in 3..=5 {
                    assert!(arity_called(&example, &format!("{name}/{arguments}")), "{arguments}");
                }
            }
        }
    }
    assert!(open.is_empty());
    assert!(seen > 30, "the sections are not found");
}

#[test]
fn the_reference_lists_every_function_in_short() {
    let list = REFERENCE.split("\n## ").next().unwrap();
    let (functions, _) = docs::added_by_loading();
    for function in functions {
        let (name, _) = function.split_once('/').unwrap();
        assert!(list.contains(&format!("`{name}(")), "{name}");
    }
}

/// Type and name of all that a file holds, without SQLite's own indexes.
fn objects(conn: &rusqlite::Connection) -> Vec<(String, String)> {
    let sql = "SELECT name, type FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name";
    let mut statement = conn.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

#[test]
fn the_reference_lists_what_a_file_holds_and_who_makes_it() {
    let mut documented: Vec<[String; 3]> = Vec::new();
    let (_, section) = REFERENCE.split_once("\n## What the file holds\n").unwrap();
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        let maker = cells[3].trim_start_matches("first `");
        documented.push([cells[1], cells[2], maker].map(String::from));
    }
    documented.sort();

    let scratch = Scratch::new();
    let conn = scratch.loaded();
    conn.execute_batch("CREATE TABLE orders(id INTEGER PRIMARY KEY, job TEXT)").unwrap();
    let mut found: Vec<[String; 3]> = Vec::new();
    let mut before = objects(&conn);
    for call in [
        "fence_init()",
        "fence_init_queue()",
        "fence_purge(0, 1)",
        "fence_pass('r', 1)",
        "fence_guard('orders', 'job')",
    ] {
        one::<i64>(&conn, &format!("SELECT {call}"));
        let now = objects(&conn);
        let new = now.iter().filter(|object| !before.contains(object)).cloned();
        found.extend(new.map(|(name, kind)| [name, kind, common::function_of(call).into()]));
        before = now;
    }
    found.sort();
    assert_eq!(documented, found);
}

#[test]
fn the_pages_have_every_sentence_of_the_triggers() {
    let mut count = 0;
    for text in [include_str!("../sql/enforce.sql"), include_str!("../sql/guard.sql")] {
        for (_, rest) in text.split("RAISE(ABORT, '").map(|rest| ("", rest)).skip(1) {
            let sentence = rest.split("')").next().unwrap().replace("''", "'");
            let sentence = sentence.trim_start_matches("{label}: ");
            assert!(STORAGE.contains(&format!("`{sentence}`")), "{sentence}");
            count += 1;
        }
    }
    assert!(count >= 12, "the sentences are not found");
}

#[test]
fn the_words_of_check_stand_in_the_order_in_which_it_looks() {
    let sql = include_str!("../sql/check.sql");
    let words = |text: &'static str, before: &'static str| -> Vec<&'static str> {
        text.split(before).skip(1).filter_map(|rest| rest.split(['\'', '`']).next()).collect()
    };
    let mut expected = words(sql, "THEN '");
    // The statement asks for `held` before it concludes that a lease is over.
    assert_eq!(expected.pop(), Some("held"));
    assert_eq!(words(sql, "ELSE '"), ["expired"]);
    expected.extend(["expired", "held"]);
    let (_, section) = REFERENCE.split_once("### fence_check(id, owner, fence)\n").unwrap();
    let table = section.split("It explains").next().unwrap();
    assert_eq!(words(table, "\n| `"), expected);
}

#[test]
fn links_within_the_project_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    let pages = ["reference", "queues", "storage", "gates", "calls", "design"];
    let pages = pages.map(|page| format!("docs/{page}.md"));
    for page in ["README.md".into(), "CHANGELOG.md".into()].into_iter().chain(pages) {
        let text = std::fs::read_to_string(root.join(&page)).unwrap();
        for (_, rest) in text.match_indices("](").map(|(at, _)| text[at..].split_at(2)) {
            let target = rest.split(')').next().unwrap();
            if target.starts_with("http") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = root.join(&page).parent().unwrap().join(file);
            let path = if file.is_empty() { root.join(&page) } else { path };
            assert!(path.exists(), "{page}: {target}");
            if !anchor.is_empty() {
                let text = std::fs::read_to_string(&path).unwrap();
                let found = text.lines().any(|line| anchor_of(line).as_deref() == Some(anchor));
                assert!(found, "{page}: {target}");
            }
            count += 1;
        }
    }
    assert!(count > 40, "the links are not found");
}

/// The anchor of a heading, as the usual hosts make it.
fn anchor_of(line: &str) -> Option<String> {
    let heading =
        line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#'))?;
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    Some(kept.collect::<String>().to_lowercase().replace(' ', "-"))
}
