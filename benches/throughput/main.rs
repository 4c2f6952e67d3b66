//! How fast the crate is beside the same statements prepared by hand, in ratios of one run.
//!
//! `cargo bench --bench throughput` takes some minutes. The arms of a comparison alternate, and
//! the median of the rounds counts, so that a busy machine disturbs them alike.

mod fairness;
mod threads;
mod workers;

use std::time::Duration;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["worker", ref rest @ ..] => return workers::child(rest),
        ["fair", ref rest @ ..] => return fairness::child(rest),
        _ => (),
    }
    println!("Claim and complete by id, `synchronous = NORMAL`; ratio of jobs per second.\n");
    workers::by_id(1);
    workers::by_id(4);
    println!("\nClaim what is due and complete it, `synchronous = NORMAL`.\n");
    workers::batches();
    println!("\nThreads that claim and complete by id.\n");
    threads::group_commit(8, fence::Durability::Normal);
    threads::group_commit(32, fence::Durability::Full);
    println!("\n64 owners claim one new job.\n");
    threads::claim_many();
    println!("\n8 processes claim and complete what is due for 3 seconds.\n");
    fairness::compare();
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
