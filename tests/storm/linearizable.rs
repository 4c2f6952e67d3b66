//! Is there an order of the calls on one job in which each was answered as a single worker alone
//! would have been, and which keeps calls that did not overlap in their order? The search is that
//! of Wing and Gong, with Lowe's memo of what was tried.
use super::history::{Answer, Call, Event, Job};
use std::collections::HashSet;

/// The sequential reference: what a call answers on a job as it stands (None: there is none), and
/// what it leaves behind.
pub fn step(job: Option<Job>, call: &Call) -> (Answer, Option<Job>) {
    let Some(before) = job else {
        return match call {
            Call::Enqueue => (Answer::Yes, Some(Job::default())),
            _ => (Answer::No, None),
        };
    };
    let held = |owner, fence| before.owner == owner && before.fence == fence && !before.done;
    let after = match *call {
        Call::State => return (Answer::Found(before), job),
        Call::Claim { owner, now, ttl } if !before.done && before.until <= now => {
            let fence = before.fence + 1;
            return (Answer::Fence(fence), Some(Job { owner, fence, until: now + ttl, ..before }));
        }
        Call::Renew { owner, fence, now, ttl } if held(owner, fence) && before.until > now => {
            Job { until: now + ttl, ..before }
        }
        Call::Complete { owner, fence, now, result }
            if held(owner, fence) && before.until > now =>
        {
            Job { result, done: true, ..before }
        }
        Call::Release { owner, fence } if held(owner, fence) => {
            Job { owner: 0, until: 0.0, ..before }
        }
        _ => return (Answer::No, job),
    };
    (Answer::Yes, Some(after))
}

/// The calls that have found their place, as a set of indices.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Placed(Vec<u64>);

impl Placed {
    fn flip(&mut self, i: usize) {
        self.0[i / 64] ^= 1 << (i % 64);
    }
}

/// A job for the memo: the moment by its bits.
fn key(job: Option<Job>) -> Option<(u64, u64, i64, u64, bool)> {
    job.map(|job| (job.owner, job.until.to_bits(), job.fence, job.result, job.done))
}

/// Invocations and answers in the order of the clock, linked so that calls can be taken out and
/// put back. Node 2i is the invocation of call i, node 2i+1 its answer; the last one is the head.
struct Timeline {
    next: Vec<usize>,
    previous: Vec<usize>,
}

impl Timeline {
    fn of(events: &[Event]) -> Self {
        let head = 2 * events.len();
        let mut order: Vec<(u64, bool, usize)> = Vec::with_capacity(head);
        for (i, event) in events.iter().enumerate() {
            // In the same nanosecond invocations go first: such calls count as overlapping.
            order.push((event.invoked, false, 2 * i));
            order.push((event.answered, true, 2 * i + 1));
        }
        order.sort_unstable();
        let mut line = Timeline { next: vec![head; head + 1], previous: vec![head; head + 1] };
        let mut last = head;
        for (_, _, node) in order {
            line.next[last] = node;
            line.previous[node] = last;
            last = node;
        }
        line.next[last] = head;
        line.previous[head] = last;
        line
    }

    /// The calls that may come next, those invoked before the first answer; behind a given one.
    fn candidates(&self, behind: Option<usize>) -> impl Iterator<Item = usize> + '_ {
        let head = self.next.len() - 1;
        let first = self.next[behind.map_or(head, |call| 2 * call)];
        std::iter::successors(Some(first), |node| Some(self.next[*node]))
            .take_while(move |node| node % 2 == 0 && *node != head)
            .map(|node| node / 2)
    }

    fn take(&mut self, call: usize) {
        for node in [2 * call, 2 * call + 1] {
            let (previous, next) = (self.previous[node], self.next[node]);
            self.next[previous] = next;
            self.previous[next] = previous;
        }
    }

    fn put_back(&mut self, call: usize) {
        for node in [2 * call + 1, 2 * call] {
            let (previous, next) = (self.previous[node], self.next[node]);
            self.next[previous] = node;
            self.previous[next] = node;
        }
    }
}

/// Checks the calls on one job, from its absence on to the row that they left behind. The error
/// names the longest order that was found and the calls of which none can come next.
pub fn check(events: &[Event], row: Option<Job>) -> Result<(), String> {
    let mut events = events.to_vec();
    let answer = row.map_or(Answer::No, Answer::Found);
    let (invoked, answered) = (u64::MAX, u64::MAX);
    events.push(Event { job: 0, invoked, answered, many: 0, call: Call::State, answer });

    let mut line = Timeline::of(&events);
    let mut placed = Placed(vec![0; events.len().div_ceil(64)]);
    let mut tried = HashSet::new();
    let mut job = None;
    // Each call with the job before it.
    let mut order: Vec<(usize, Option<Job>)> = Vec::new();
    let mut furthest = (0, None, Vec::new());
    // After a call that was taken back, the search goes on behind it.
    let mut behind = None;
    loop {
        // A call that changes nothing and may come now comes now: later is no better.
        let fits = |call: usize, job| step(job, &events[call].call) == (events[call].answer, job);
        loop {
            let Some(call) = line.candidates(None).find(|call| fits(*call, job)) else { break };
            placed.flip(call);
            line.take(call);
            order.push((call, job));
        }
        if order.len() == events.len() {
            return Ok(());
        }
        let next = line.candidates(behind.take()).find_map(|call| {
            let (answer, after) = step(job, &events[call].call);
            if answer != events[call].answer {
                return None;
            }
            placed.flip(call);
            let new = tried.insert((placed.clone(), key(after)));
            if !new {
                placed.flip(call);
            }
            new.then_some((call, after))
        });
        if let Some((call, after)) = next {
            line.take(call);
            order.push((call, job));
            job = after;
            continue;
        }
        if order.len() >= furthest.0 {
            furthest = (order.len(), job, line.candidates(None).collect());
        }
        while behind.is_none() {
            let Some((call, before)) = order.pop() else {
                let (length, job, next) = furthest;
                let next: Vec<&Event> = next.into_iter().map(|call| &events[call]).collect();
                let all = events.len();
                return Err(format!(
                    "no order explains the {all} calls: after {length} of them, with {job:?}, \
                     none of these can come next: {next:#?}"
                ));
            };
            placed.flip(call);
            line.put_back(call);
            behind = (before != job).then_some(call);
            job = before;
        }
    }
}
