//! Documents that are run: their blocks, and SQL whose comments say what it prints.
use super::{client, extension, load, one, pipe, stderr, stdout, Scratch};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A fenced block of a Markdown page.
pub struct Block {
    pub language: String,
    /// The heading above it.
    pub heading: String,
    pub text: String,
}

pub fn blocks(markdown: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut heading = String::new();
    let mut open: Option<Block> = None;
    for line in markdown.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (Some(_), Some("")) => blocks.extend(open.take()),
            (Some(block), _) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, Some(language)) => {
                let (language, heading) = (language.into(), heading.clone());
                open = Some(Block { language, heading, text: String::new() });
            }
            (None, None) if line.starts_with('#') => heading = line.into(),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block is never closed");
    blocks
}

/// A statement, or a command of the shell, and the lines that it must print.
#[derive(Default)]
pub struct Part {
    pub sql: String,
    pub expected: Vec<String>,
}

/// Splits SQL into parts. What a statement prints stands in a comment behind its semicolon and
/// in comments directly below it; a comment after an empty line is prose.
pub fn script(text: &str) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut sql = String::new();
    let mut prose = true;
    for line in text.lines() {
        let (code, comment) = match line.rsplit_once("-- ") {
            Some((code, comment)) if code.trim().is_empty() || code.trim_end().ends_with(';') => {
                (code.trim_end(), Some(comment.trim()))
            }
            _ => (line.trim_end(), None),
        };
        if code.is_empty() && sql.is_empty() {
            match comment {
                None => prose = line.trim().is_empty() || line.trim() == "--",
                Some(comment) if !prose => {
                    parts.last_mut().expect("after a part").expected.push(comment.into());
                }
                Some(_) => {}
            }
            continue;
        }
        sql.push_str(code);
        sql.push('\n');
        if code.ends_with(';') || code.starts_with('.') {
            let expected = comment.map(String::from).into_iter().collect();
            parts.push(Part { sql: std::mem::take(&mut sql), expected });
            prose = false;
        }
    }
    assert!(sql.is_empty(), "a statement is never ended: {sql}");
    parts
}

/// What each part prints in the sqlite3 shell, on an empty database, in a folder that looks like
/// the project's. An error is a line `Error: ..`. Where the script does not load the extension
/// itself, it is loaded, the job table is there and NULL is shown as NULL.
pub fn run_in_shell(scratch: &Scratch, parts: &[Part]) -> Option<Vec<Vec<String>>> {
    const NEXT: &str = "-- next part --";
    let program = client("sqlite3")?;
    let loads = parts.iter().any(|part| part.sql.starts_with(".load"));
    let mut input = String::new();
    if !loads {
        input.push_str(".load target/release/libfence\n.nullvalue NULL\n");
        input.push_str(".once /dev/null\nSELECT fence_init();\n");
    }
    let mut first_lines = Vec::new();
    for part in parts {
        input.push_str(&format!(".print {NEXT}\n"));
        first_lines.push(input.lines().count() + 1);
        input.push_str(&part.sql);
    }
    let folder = project_folder(scratch);
    let output =
        pipe(Command::new(program).args(["-batch", "jobs.db"]).current_dir(folder), &input);

    let printed = stdout(&output);
    let next = format!("{NEXT}\n");
    let mut sections = printed.split(&next);
    assert_eq!(sections.next(), Some(""), "{}", stderr(&output));
    let mut outcomes: Vec<Vec<String>> =
        sections.map(|section| section.lines().map(String::from).collect()).collect();
    assert_eq!(outcomes.len(), parts.len(), "{}", stderr(&output));
    for line in stderr(&output).lines() {
        // The shell shows the place of an error in lines of their own.
        if line.starts_with(' ') {
            continue;
        }
        let (number, message) = line
            .split_once("near line ")
            .and_then(|(_, rest)| rest.split_once(": "))
            .unwrap_or_else(|| panic!("{line}"));
        let number: usize = number.parse().unwrap();
        let part = first_lines.iter().rposition(|first| *first <= number).expect(line);
        outcomes[part].push(format!("Error: {message}"));
    }
    Some(outcomes)
}

/// A folder in which the paths of the documents lead to the built extension, the statement files
/// and the examples.
pub fn project_folder(scratch: &Scratch) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = scratch.dir.path().join("project");
    let release = folder.join("target/release");
    if !release.exists() {
        std::fs::create_dir_all(&release).unwrap();
        std::fs::copy(extension(), release.join("libfence.so")).unwrap();
        for name in ["sql", "examples"] {
            std::os::unix::fs::symlink(root.join(name), folder.join(name)).unwrap();
        }
    }
    folder
}

/// An example of the project, as its source stands now: `cargo test --test ..` alone would leave
/// an old one. Built in the profile and the target directory of the tests.
pub fn example(name: &str) -> Command {
    let tests = std::env::current_exe().unwrap();
    let folder = tests.ancestors().nth(2).expect("target/<profile>/deps/<test>");
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") => "dev",
        Some(profile) => profile,
        None => panic!("{}", folder.display()),
    };
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--profile", profile, "--example", name, "--target-dir"])
        .arg(folder.parent().expect("target"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Command::new(folder.join("examples").join(name))
}

/// What a program in `text` must print: the comments behind its lines that print.
pub fn printed(text: &str, print: &str, comment: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| line.trim_start().starts_with(print));
    lines.map(|line| line.split_once(comment).expect(line).1.trim().to_owned()).collect()
}

/// The folder of Node's packages with better-sqlite3 in it, which npm fetches and compiles once.
/// Where that is impossible the test says so, but fails in CI.
pub fn better_sqlite3() -> Option<PathBuf> {
    let (node, npm) = (client("node")?, client("npm")?);
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/clients");
    let modules = clients.join("node_modules");
    let loads = || {
        let probe = "new (require('better-sqlite3'))(':memory:').close()";
        let mut command = Command::new(&node);
        command.args(["-e", probe]).env("NODE_PATH", &modules).stderr(Stdio::null());
        command.status().unwrap().success()
    };
    if loads() {
        return Some(modules);
    }
    std::fs::create_dir_all(&clients).unwrap();
    let mut install = Command::new(npm);
    install.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(&clients);
    install.arg("better-sqlite3@12");
    // Node's headers from beside it, so that the compilation needs no download.
    let node = node.canonicalize().unwrap();
    let prefix = node.ancestors().nth(2).expect("<prefix>/bin/node");
    if prefix.join("include/node/node.h").exists() {
        install.env("npm_config_nodedir", prefix);
    }
    let output = install.output().unwrap();
    if output.status.success() && loads() {
        return Some(modules);
    }
    let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!ci, "npm cannot install better-sqlite3@12:\n{}", stderr(&output));
    eprintln!("NOT TESTED: better-sqlite3 is missing and npm cannot install it");
    None
}

/// Whether `function`, given as `name/arguments`, is called in `sql` with that many arguments.
pub fn arity_called(sql: &str, function: &str) -> bool {
    let (name, arity) = function.split_once('/').unwrap();
    let arguments = |call: &str| {
        let (mut depth, mut text, mut commas, mut empty) = (0, false, 0, true);
        for c in call.chars() {
            match c {
                '\'' => text = !text,
                _ if text => {}
                '(' | '[' => depth += 1,
                ')' if depth == 0 => break,
                ')' | ']' => depth -= 1,
                ',' if depth == 0 => commas += 1,
                _ => {}
            }
            empty = false;
        }
        if empty {
            0
        } else {
            commas + 1
        }
    };
    let calls = sql.match_indices(name).filter_map(|(at, _)| {
        let opens = !sql[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        sql[at + name.len()..].strip_prefix('(').filter(|_| opens)
    });
    calls.map(arguments).any(|count| count.to_string() == arity)
}

/// The functions, as `name/arguments`, and the virtual tables that loading the extension adds.
pub fn added_by_loading() -> (Vec<String>, Vec<String>) {
    let names = |sql: &str| {
        let plain = Connection::open_in_memory().unwrap();
        let loaded = Connection::open_in_memory().unwrap();
        load(&loaded).unwrap();
        let list = |conn: &Connection| {
            let all: String = one(conn, sql);
            all.lines().map(String::from).collect::<Vec<_>>()
        };
        let before = list(&plain);
        let mut added: Vec<String> =
            list(&loaded).into_iter().filter(|name| !before.contains(name)).collect();
        added.sort();
        added
    };
    (
        names("SELECT group_concat(name || '/' || narg, char(10)) FROM pragma_function_list"),
        names("SELECT group_concat(name, char(10)) FROM pragma_module_list"),
    )
}
