//! Two workers, two processes, one database file: A stalls past the end of its lease, B takes
//! the job over and finishes it, A wakes up and writes its result.
//!
//! `cargo run --release --example stale_worker` shows A's write being refused, by the function and,
//! as a plain UPDATE, by the file.
//! `.. -- --without-fence` takes the file's triggers off, to show what the fence is for.
//! `.. -- FILE` keeps the database, in a new file.
use rusqlite::types::ValueRef;
use rusqlite::Connection;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// How A says that the next move is B's.
const STALLS: &str = "-- stalls: no sign of life until B is done";

fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let fenced = !args.iter().any(|arg| arg == "--without-fence");
    args.retain(|arg| arg != "--without-fence");
    let outcome = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["worker", name, file, started] => worker(name, file.as_ref(), started, fenced),
        [] => tempfile::tempdir()
            .map_err(Into::into)
            .and_then(|dir| story(&dir.path().join("jobs.db"), fenced)),
        [file] if !file.starts_with('-') => story(file.as_ref(), fenced),
        _ => Err("usage: stale_worker [--without-fence] [FILE]".into()),
    };
    outcome.unwrap_or_else(|e| {
        eprintln!("stale_worker: {e}");
        ExitCode::from(2)
    })
}

/// Sets the stage, starts the two workers and judges by the row that they leave.
fn story(file: &Path, fenced: bool) -> Result<ExitCode> {
    if file.exists() {
        return Err("this file is there already; choose a new one".into());
    }
    let started = UNIX_EPOCH.elapsed()?.as_secs_f64();
    let this = Process::new("setup", file, started)?;
    this.run("PRAGMA journal_mode = WAL;")?;
    this.run("SELECT fence_init();")?;
    if !fenced {
        this.take_guards_off()?;
    }
    this.run("SELECT fence_enqueue('report');")?;

    let mut a = Worker::start("A", file, started, fenced)?;
    a.relay_until(|line| line.ends_with(STALLS))?;
    let mut b = Worker::start("B", file, started, fenced)?;
    b.relay_until(|_| false)?;
    b.succeeded()?;
    a.relay_until(|_| false)?;
    a.succeeded()?;

    let result = row(&this.conn)?;
    if result == "written by B" {
        println!("\nThe stale write was refused.");
        Ok(ExitCode::SUCCESS)
    } else {
        println!("\nThe stale write went through: B's result is lost.");
        Ok(ExitCode::FAILURE)
    }
}

fn worker(name: &str, file: &Path, started: &str, fenced: bool) -> Result<ExitCode> {
    let this = Process::new(name, file, started.parse()?)?;
    if name == "A" {
        let fence = this.run("SELECT fence_claim('report', 'A', 1);")?;
        this.say(STALLS);
        // A real worker does not wait: it hangs in a long pause, a suspended laptop, a slow disk.
        this.until(|| Ok(this.value("SELECT done FROM jobs WHERE id = 'report'")? == "1"))?;
        this.say("-- wakes up");
        if fenced {
            this.run(&format!("SELECT fence_complete('report', 'A', {fence}, 'written by A');"))?;
        }
        let write = "UPDATE jobs SET result = 'written by A' WHERE id = 'report';";
        match this.conn.execute(write, []) {
            Ok(rows) => this.show(write, &format!("{rows} row")),
            Err(refused) => this.show(write, &refused.to_string()),
        }
    } else {
        let claim = "SELECT fence_claim('report', 'B', 60);";
        let mut fence = this.run(claim)?;
        if fence == "NULL" {
            this.say("-- tries again until A's lease is over");
            this.until(|| {
                fence = this.value(claim)?;
                Ok(fence != "NULL")
            })?;
            this.show(claim, &fence);
        }
        this.run(&format!("SELECT fence_complete('report', 'B', {fence}, 'written by B');"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// One process with its connection; what it runs is what it prints.
struct Process {
    name: String,
    conn: Connection,
    started: SystemTime,
}

impl Process {
    fn new(name: &str, file: &Path, started: f64) -> Result<Self> {
        let conn = Connection::open(file)?;
        conn.busy_timeout(Duration::from_secs(5))?;
        fence::register(&conn)?;
        let started = UNIX_EPOCH + Duration::try_from_secs_f64(started)?;
        Ok(Process { name: name.into(), conn, started })
    }

    fn value(&self, sql: &str) -> Result<String> {
        Ok(self.conn.query_row(sql, [], |row| Ok(text(row.get_ref(0)?)))?)
    }

    fn run(&self, sql: &str) -> Result<String> {
        let value = self.value(sql)?;
        self.show(sql, &value);
        Ok(value)
    }

    fn show(&self, sql: &str, value: &str) {
        self.say(&format!("{sql:<62} {value}"));
    }

    fn say(&self, line: &str) {
        let seconds = self.started.elapsed().unwrap_or_default().as_secs_f64();
        println!("{seconds:5.2} s  {:<5}  {line}", self.name);
    }

    /// What refuses a plain UPDATE.
    fn take_guards_off(&self) -> Result<()> {
        let sql = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'jobs'";
        let mut statement = self.conn.prepare(sql)?;
        let names: Vec<String> =
            statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        for name in &names {
            self.conn.execute(&format!("DROP TRIGGER \"{name}\""), [])?;
        }
        self.say(&format!("-- takes {} triggers off the table jobs", names.len()));
        Ok(())
    }

    /// Polls for an event, not for ever.
    fn until(&self, mut happened: impl FnMut() -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !happened()? {
            if Instant::now() > deadline {
                return Err(format!("{} waited a minute for nothing", self.name).into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

/// A worker process as the story sees it: its lines are printed as they come.
struct Worker {
    process: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Worker {
    fn start(name: &str, file: &Path, started: f64, fenced: bool) -> Result<Self> {
        let this_program: PathBuf = std::env::current_exe()?;
        let mut process = Command::new(this_program)
            .args(["worker", name])
            .arg(file)
            .arg(started.to_string())
            .args((!fenced).then_some("--without-fence"))
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = process.stdout.take().ok_or("no pipe to the worker")?;
        Ok(Worker { process, lines: BufReader::new(stdout).lines() })
    }

    fn relay_until(&mut self, last: impl Fn(&str) -> bool) -> Result<()> {
        for line in self.lines.by_ref() {
            let line = line?;
            println!("{line}");
            std::io::stdout().flush()?;
            if last(&line) {
                break;
            }
        }
        Ok(())
    }

    fn succeeded(&mut self) -> Result<()> {
        let status = self.process.wait()?;
        status.success().then_some(()).ok_or_else(|| "a worker failed".into())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Where the story ended early, nobody needs the worker any more.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Prints the job and answers its result.
fn row(conn: &Connection) -> Result<String> {
    let sql = "SELECT * FROM jobs WHERE id = 'report';";
    let mut statement = conn.prepare(sql)?;
    let names: Vec<String> = statement.column_names().iter().map(|name| name.to_string()).collect();
    let values = statement.query_row([], |row| {
        (0..names.len()).map(|i| Ok(text(row.get_ref(i)?))).collect::<rusqlite::Result<Vec<_>>>()
    })?;
    println!("\n{sql}");
    for line in [&names, &values] {
        let cells = line.iter().enumerate().map(|(i, cell)| {
            let width = names[i].len().max(values[i].len());
            format!("{cell:<width$}")
        });
        println!("  {}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    Ok(values[4].clone())
}

fn text(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "NULL".into(),
        ValueRef::Integer(i) => i.to_string(),
        ValueRef::Real(r) => format!("{r:.3}"),
        ValueRef::Text(t) | ValueRef::Blob(t) => String::from_utf8_lossy(t).into_owned(),
    }
}
