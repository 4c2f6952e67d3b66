//! Fast tests that take the SQL texts as a parameter, so that one changed text is judged in a
//! fraction of a second. None of them looks at the text itself.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rusqlite::Connection;

use crate::arguments::{self, Case, Verdict};
use crate::doors::{Mistake, Plain};
use crate::lockstep::{self, Edge, Lockstep};
use crate::play::{self, Coverage};
use crate::protocol::Call;
use crate::search::Bounds;
use crate::statements::Statements;
use crate::steps::{self, Step};
use crate::stories::{self, Scenario};

/// The oracle that found a fault, and what it saw.
pub type Fault = (&'static str, String);

type Oracle = fn(&Oracles, &Statements, &str) -> Result<(), String>;

/// The quick ones first.
pub const ORACLES: [(&str, Oracle); 4] = [
    ("scenarios", Oracles::scenarios),
    ("arguments", Oracles::arguments),
    ("lockstep", Oracles::lockstep),
    ("sequences", Oracles::sequences),
];

pub struct Oracles {
    /// The file of each operation in `cases`.
    files: Vec<&'static str>,
    scenarios: Vec<Scenario>,
    edges: Vec<Edge>,
    sequences: Vec<Vec<Step>>,
    cases: Vec<(Case, Verdict)>,
}

/// Files that every operation depends on.
const SHARED: [&str; 6] = ["schema", "enforce", "queue", "purge_index", "gate", "status"];

impl Oracles {
    /// `extended` has the functions, and everything made.
    pub fn new(extended: &Connection) -> Self {
        let mut scenarios = stories::scenarios();
        scenarios.extend(stories::vectors());
        let cases = arguments::cases(3);
        let verdicts = arguments::by_functions(extended, &cases);
        // Always the same ones: a mutant that is explained today must not be found tomorrow.
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let sequences = (0..12)
            .map(|_| steps::steps(120).new_tree(&mut runner).expect("steps").current())
            .collect();
        Oracles {
            files: arguments::operations().iter().map(|operation| operation.file).collect(),
            scenarios,
            edges: lockstep::edges(Bounds { claims: 2, resets: 1, restores: 0 }),
            sequences,
            cases: cases.into_iter().zip(verdicts).collect(),
        }
    }

    /// Which oracle finds fault with these statements, of which the file `changed` was changed,
    /// and why.
    pub fn judge(&self, statements: &Statements, changed: &str) -> Result<(), Fault> {
        ORACLES.iter().try_for_each(|(name, oracle)| {
            oracle(self, statements, changed).map_err(|why| (*name, why))
        })
    }

    fn scenarios(&self, statements: &Statements, changed: &str) -> Result<(), String> {
        let concerns = |scenario: &&Scenario| {
            SHARED.contains(&changed) || scenario.steps.iter().any(|step| step.operation == changed)
        };
        let mut concerned = self.scenarios.iter().filter(concerns);
        concerned.try_for_each(|scenario| stories::play(statements, scenario))
    }

    fn arguments(&self, statements: &Statements, changed: &str) -> Result<(), String> {
        let own = |(case, _): &&(Case, Verdict)| self.files[case.operation] == changed;
        let mut own =
            self.cases.iter().filter(own).map(|(case, verdict)| (case, verdict)).peekable();
        if own.peek().is_some() {
            arguments::plain_agrees(statements, own)?;
        }
        Ok(())
    }

    fn lockstep(&self, statements: &Statements, changed: &str) -> Result<(), String> {
        let concerns = |(_, call, _): &&Edge| match changed {
            "guard" => matches!(call, Call::Write { .. } | Call::WriteAndComplete { .. }),
            "claim" => matches!(call, Call::Claim { .. }),
            "renew" => matches!(call, Call::Renew { .. }),
            "complete" => matches!(call, Call::Complete { .. }),
            "fail" => matches!(call, Call::Fail { .. }),
            "release" => matches!(call, Call::Release { .. }),
            "requeue" => matches!(call, Call::Requeue),
            "enqueue" => matches!(call, Call::Enqueue),
            "restore" => matches!(call, Call::Restore { .. }),
            file => SHARED.contains(&file),
        };
        let lockstep = Lockstep::new(statements).map_err(|e| e.to_string())?;
        self.edges.iter().filter(concerns).try_for_each(|edge| lockstep.replay(edge))
    }

    fn sequences(&self, statements: &Statements, changed: &str) -> Result<(), String> {
        if ["guard", "gate", "pass", "lock", "clock", "status"].contains(&changed) {
            return Ok(()); // not played
        }
        for steps in &self.sequences {
            let door = Plain::new(statements, Mistake::None).map_err(|e| e.to_string())?;
            play::play(&door, steps, &mut Coverage::new())?;
        }
        Ok(())
    }
}
