//! How fast the crate is beside the same statements prepared by hand, in ratios of one run.
//!
//! `cargo bench --bench throughput` takes some minutes. The arms of a comparison alternate, and
//! the median of the rounds counts, so that a busy machine disturbs them alike. With names of parts
//! as arguments it runs those alone, as in `cargo bench --bench throughput -- fairness`.

mod fairness;
mod threads;
mod workers;

use std::time::Duration;
use threads::Take;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["worker", ref rest @ ..] => return workers::child(rest),
        ["fair", ref rest @ ..] => return fairness::child(rest),
        _ => (),
    }
    let parts: [(&str, &str, fn()); 5] = [
        ("by_id", "Claim and complete by id at NORMAL; ratio of jobs per second.", || {
            workers::by_id(1);
            workers::by_id(4);
        }),
        ("batches", "Claim what is due and complete it, at NORMAL.", workers::batches),
        ("group_commit", "Threads of one process.", || {
            threads::group_commit(8, fence::Durability::Normal, Take::Own);
            threads::group_commit(8, fence::Durability::Normal, Take::Next);
            threads::group_commit(32, fence::Durability::Full, Take::Own);
        }),
        ("claim_many", "64 owners claim one new job.", threads::claim_many),
        (
            "fairness",
            "8 processes claim and complete what is due for 3 seconds.",
            fairness::compare,
        ),
    ];
    for (name, title, run) in parts {
        if arguments.is_empty() || arguments.iter().any(|argument| argument == name) {
            println!("{title}\n");
            run();
            println!();
        }
    }
}

/// Runs the arms in turn and answers the median of each.
fn alternate<const N: usize>(
    rounds: usize,
    mut arms: [&mut dyn FnMut() -> Duration; N],
) -> [Duration; N] {
    let mut times = [const { Vec::new() }; N];
    for _ in 0..rounds {
        for (arm, times) in arms.iter_mut().zip(&mut times) {
            times.push(arm());
        }
    }
    times.map(|mut times| {
        times.sort();
        times[times.len() / 2]
    })
}

fn ratio(base: Duration, arm: Duration) -> f64 {
    base.as_secs_f64() / arm.as_secs_f64()
}

/// The q-quantile of sorted times.
fn quantile(sorted: &[Duration], q: f64) -> Duration {
    sorted[((sorted.len() - 1) as f64 * q).round() as usize]
}
