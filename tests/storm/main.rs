//! The storm: processes and threads that go through all doors at once, by clocks that do not
//! agree, note what they called and what they were told. Every such history is one that workers
//! taking turns could have had (linearizable), and keeps the rules that a lease is made of.
//! Workers that are broken on purpose show that the checks can fail.
//!
//! The workers are this program with other arguments, so it does without the usual harness.
#[path = "broken.rs"]
mod broken;
#[path = "../common/mod.rs"]
mod common;
mod door;
mod harness;
mod history;
mod linearizable;
mod linearizable_cases;
mod rules;
mod rules_cases;
mod worker;

use broken::Fault;
use common::tier::{scale, seed, Random};
use history::{monotonic, Answer, Call, Event, Job};
use std::collections::BTreeMap;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};
use worker::Orders;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == "worker") {
        worker::run(&Orders::read(&arguments[1..]));
        return ExitCode::SUCCESS;
    }
    let mut tests: Vec<harness::Test> = vec![
        ("every_history_of_the_storm_is_linearizable_and_keeps_the_rules", storm),
        ("a_claim_in_two_steps_is_found_out", || found_out(Fault::ClaimsInTwoSteps)),
        ("a_claim_of_live_leases_is_found_out", || found_out(Fault::ClaimsLiveLeases)),
        ("a_completion_without_fence_is_found_out", || found_out(Fault::CompletesWithoutFence)),
    ];
    tests.extend(linearizable_cases::TESTS);
    tests.extend(rules_cases::TESTS);
    harness::run(&tests)
}

/// What one round did, and what the checks say about it.
#[derive(Default)]
struct Round {
    events: usize,
    jobs: usize,
    locked: usize,
    rolled_back: usize,
    /// Operation and outcome.
    outcomes: BTreeMap<&'static str, usize>,
    checking: Duration,
    unlinearizable: Vec<String>,
    broken_rules: Vec<String>,
}

fn storm() {
    let seconds = scale(4.0, 60.0, 600.0);
    let seed = seed();
    let mut random = Random::new(seed);
    let start = Instant::now();
    let (mut all, mut rounds) = (Round::default(), 0);
    // Many short rounds: each has its own file, processes, busy timeouts and clocks.
    while rounds < 2 || start.elapsed().as_secs_f64() < seconds {
        let length = scale(1.5, 3.0, 5.0);
        let journal = if rounds % 3 == 1 { "DELETE" } else { "WAL" };
        let round = round(random.next(), length, journal, Fault::None);
        let faults = [&round.unlinearizable[..], &round.broken_rules[..]].concat();
        assert!(faults.is_empty(), "seed {seed}, round {rounds}, {journal}: {}", faults.join("\n"));
        all.add(round);
        rounds += 1;
    }
    let Round { events, jobs, locked, rolled_back, outcomes, checking, .. } = &all;
    println!(
        "storm: seed {seed}, {rounds} rounds, {:.1} s: {events} operations on {jobs} jobs, checked \
         in {:.2} s; {locked} met a lock and {rolled_back} were rolled back without a trace",
        start.elapsed().as_secs_f64(),
        checking.as_secs_f64()
    );
    println!("storm: {outcomes:?}");
    for outcome in OUTCOMES {
        assert!(outcomes.get(outcome).is_some_and(|n| *n > 0), "{outcome} never happened");
    }
    assert!(*locked > 0 && *rolled_back > 0, "{locked} met a lock, {rolled_back} rolled back");
}

const OUTCOMES: [&str; 13] = [
    "enqueued",
    "enqueue refused",
    "claimed",
    "taken over",
    "claim refused",
    "renewed",
    "renewal refused",
    "completed",
    "completion refused",
    "released",
    "release refused",
    "state",
    "claim_many won alone",
];

/// One broken worker among sound ones: both checks see it, soon.
fn found_out(fault: Fault) {
    let seed = seed();
    let mut random = Random::new(seed);
    let (mut search, mut rules) = (None, None);
    let start = Instant::now();
    let mut rounds = 0;
    while rounds < 20 && (search.is_none() || rules.is_none()) {
        let round = round(random.next(), 0.4, "WAL", fault);
        search = search.or(round.unlinearizable.into_iter().next());
        rules = rules.or(round.broken_rules.into_iter().next());
        rounds += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{fault:?}: seed {seed}, {rounds} rounds, {seconds:.1} s");
    let rules = rules.expect("the rules pass a broken worker");
    search.expect("the search passes a broken worker");
    let sentences: &[&str] = match fault {
        // Whichever of its consequences the storm shows first.
        Fault::ClaimsInTwoSteps => {
            &["was issued twice", "the row has fence", "the last generation did not complete"]
        }
        Fault::ClaimsLiveLeases => &["was live"],
        _ => &["the last generation did not complete", "after the completions"],
    };
    assert!(sentences.iter().any(|sentence| rules.contains(sentence)), "{rules}");
}

impl Round {
    fn add(&mut self, other: Round) {
        self.events += other.events;
        self.jobs += other.jobs;
        self.locked += other.locked;
        self.rolled_back += other.rolled_back;
        self.checking += other.checking;
        for (outcome, n) in other.outcomes {
            *self.outcomes.entry(outcome).or_default() += n;
        }
    }

    fn count(&mut self, events: &[Event]) {
        self.jobs += 1;
        self.events += events.len();
        for event in events {
            let outcome = match (event.call, event.answer) {
                (Call::Enqueue, Answer::Yes) => "enqueued",
                (Call::Enqueue, _) => "enqueue refused",
                (Call::Claim { .. }, Answer::Fence(1)) => "claimed",
                (Call::Claim { .. }, Answer::Fence(_)) => "taken over",
                (Call::Claim { .. }, _) => "claim refused",
                (Call::Renew { .. }, Answer::Yes) => "renewed",
                (Call::Renew { .. }, _) => "renewal refused",
                (Call::Complete { .. }, Answer::Yes) => "completed",
                (Call::Complete { .. }, _) => "completion refused",
                (Call::Release { .. }, Answer::Yes) => "released",
                (Call::Release { .. }, _) => "release refused",
                (Call::State, _) => "state",
            };
            *self.outcomes.entry(outcome).or_default() += 1;
        }
        *self.outcomes.entry("claim_many won alone").or_default() +=
            rules::undisturbed_winners(events);
    }
}

/// Workers of every kind for some seconds on a new file, and the checks of what they noted.
fn round(seed: u64, seconds: f64, journal: &str, fault: Fault) -> Round {
    let mut random = Random::new(seed);
    let scratch = door::scratch();
    let extension = common::extension();
    let conn = scratch.loaded();
    let mode: String = common::one(&conn, &format!("PRAGMA journal_mode = {journal}"));
    assert_eq!(mode, journal.to_lowercase());
    conn.execute_batch("SELECT fence_init(); SELECT fence_purge(0, 1);").unwrap();
    conn.execute_batch(door::EFFECTS).unwrap();

    let start = monotonic();
    let mut orders = Orders {
        database: scratch.db(),
        extension: extension.to_owned(),
        door: String::new(),
        fault,
        seed: 0,
        first: 0,
        threads: 0,
        start,
        end: start + (seconds * 1e9) as u64,
    };
    // A store would change the file to WAL.
    let rust = if journal == "WAL" { "store" } else { "paths" };
    let doors = ["extension", rust, "extension", rust, "extension", "paths"];
    let mut children: Vec<Child> = Vec::new();
    for door in doors {
        orders.door = door.into();
        orders.seed = random.next();
        orders.threads = 1 + random.below(3) as u64;
        let child = Command::new(std::env::current_exe().unwrap())
            .arg("worker")
            .args(orders.arguments())
            .spawn()
            .unwrap();
        children.push(child);
        orders.first += orders.threads;
    }
    for mut child in children {
        assert!(child.wait().unwrap().success(), "a worker failed, its sentence stands above");
    }

    let mut jobs: BTreeMap<u64, Vec<Event>> = BTreeMap::new();
    let mut round = Round::default();
    for worker in 0..orders.first {
        let text = std::fs::read_to_string(worker::history_file(&scratch.db(), worker)).unwrap();
        let (events, counts) = text.trim_end().rsplit_once('\n').unwrap_or(("", &text));
        for line in events.lines() {
            let event = Event::read(line);
            jobs.entry(event.job).or_default().push(event);
        }
        let counts: Vec<&str> = counts.split(' ').collect();
        round.locked += counts[1].parse::<usize>().unwrap();
        round.rolled_back += counts[4].trim().parse::<usize>().unwrap();
    }

    let checking = Instant::now();
    assert_eq!(common::one::<String>(&conn, "PRAGMA integrity_check"), "ok");
    let mut rows = last_rows(&conn);
    for (job, events) in jobs {
        let last = rows.remove(&job);
        round.count(&events);
        let named = |e: String| format!("job-{job}: {e}");
        round.unlinearizable.extend(linearizable::check(&events, last).err().map(named));
        round.broken_rules.extend(rules::check(&events, last).err().map(named));
    }
    if !rows.is_empty() {
        round.broken_rules.push(format!("rows that nobody made: {rows:?}"));
    }
    // Effects are written together with the completion that they belong to.
    let orphans: i64 = common::one(
        &conn,
        "SELECT count(*) FROM effects AS e JOIN jobs AS j ON j.id = e.job
          WHERE (e.generation, e.result, 1) IS NOT (j.fence, j.result, j.done)",
    );
    if orphans > 0 {
        round.broken_rules.push(format!("{orphans} effects without their completion"));
    }
    round.checking = checking.elapsed();
    round
}

fn last_rows(conn: &rusqlite::Connection) -> BTreeMap<u64, Job> {
    let mut statement =
        conn.prepare("SELECT id, owner, until, fence, result, done FROM jobs").unwrap();
    let rows = statement.query_map([], |row| {
        let found = door::Row {
            owner: row.get(1)?,
            until: row.get(2)?,
            fence: row.get(3)?,
            result: row.get(4)?,
            done: row.get(5)?,
        };
        Ok((row.get::<_, String>(0)?["job-".len()..].parse().unwrap(), worker::job(&found)))
    });
    rows.unwrap().map(Result::unwrap).collect()
}
