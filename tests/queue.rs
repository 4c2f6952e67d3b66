//! Claiming whatever is due: which job comes next, in which queue, from which moment on. The
//! plain statement files and the SQL functions are asked the same questions.
mod common;

use common::{error_of, file, jobs, one, Scratch};
use rusqlite::{params, Connection, ToSql};

/// A way to the same protocol.
struct Door {
    name: &'static str,
    conn: Connection,
    plain: bool,
    _scratch: Scratch,
}

/// The plain files on a connection without the extension, and the functions of the loaded one.
fn doors() -> [Door; 2] {
    [true, false].map(|plain| {
        let scratch = Scratch::new();
        let name = if plain { "plain files" } else { "functions" };
        let conn = if plain { scratch.connect() } else { scratch.loaded() };
        if plain {
            for name in ["schema", "enforce", "status", "queue"] {
                conn.execute_batch(&file(name)).unwrap();
            }
        } else {
            conn.execute_batch("SELECT fence_init(); SELECT fence_init_queue();").unwrap();
        }
        Door { name, conn, plain, _scratch: scratch }
    })
}

type Taken = (String, i64, f64);

impl Door {
    /// Runs a statement file, or the function of its name, that answers 1 or 0.
    fn changed(&self, name: &str, parameters: &[&dyn ToSql]) -> bool {
        let outcome = if self.plain {
            self.conn.prepare(&file(name)).unwrap().execute(parameters).unwrap() as i64
        } else {
            let function = name.trim_end_matches("_at");
            let marks = vec!["?"; parameters.len()].join(", ");
            let sql = format!("SELECT fence_{function}({marks})");
            self.conn.query_row(&sql, parameters, |row| row.get(0)).unwrap()
        };
        assert!(outcome <= 1, "{}: {name} changed {outcome}", self.name);
        outcome == 1
    }

    fn enqueue(&self, ids: &[&str]) {
        for id in ids {
            assert!(self.changed("enqueue", &[id]), "{id}");
        }
    }

    fn enqueue_at(&self, id: &str, due: f64) {
        assert!(self.changed("enqueue_at", &[&id, &due]), "{id}");
    }

    fn claim_by_id(&self, id: &str, now: f64, ttl: f64) -> Option<i64> {
        if self.plain {
            let mut statement = self.conn.prepare(&file("claim")).unwrap();
            let mut rows = statement.query(params![id, "id", now, ttl]).unwrap();
            let fence = rows.next().unwrap().map(|row| row.get(0).unwrap());
            assert!(fence.is_none() || rows.next().unwrap().is_none());
            return fence;
        }
        let sql = "SELECT fence_claim(?, 'id', ?, ?)";
        self.conn.query_row(sql, params![id, now, ttl], |row| row.get(0)).unwrap()
    }

    fn try_claim(&self, parameters: &[&dyn ToSql]) -> rusqlite::Result<Vec<Taken>> {
        let sql = if self.plain {
            file(if parameters.len() == 4 { "claim_next" } else { "claim_batch" })
        } else {
            "SELECT id, fence, until FROM fence_claim_batch(?, ?, ?, ?, ?)".into()
        };
        let mut statement = self.conn.prepare(&sql)?;
        let taken = statement
            .query_map(parameters, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect();
        taken
    }

    /// The ids that a claim takes, sorted; each with the end of its lease.
    fn claim(&self, queue: &str, now: f64, limit: i64) -> Vec<String> {
        let taken = if self.plain && limit == 1 {
            self.try_claim(&[&"w", &now, &10.0, &queue])
        } else {
            self.try_claim(&[&"w", &now, &10.0, &limit, &queue])
        };
        let taken = taken.unwrap();
        let mut ids = Vec::new();
        for (id, fence, until) in taken {
            assert_eq!(until, now + 10.0, "{}: {id}", self.name);
            let sql = format!("SELECT owner || fence || until || done FROM jobs WHERE id = '{id}'");
            let expected = format!("w{fence}{until:?}0");
            assert_eq!(one::<String>(&self.conn, &sql), expected, "{}: {id}", self.name);
            ids.push(id);
        }
        ids.sort();
        ids
    }

    /// Claims one job after the other.
    fn order(&self, queue: &str, now: f64) -> Vec<String> {
        let mut order = Vec::new();
        loop {
            match &self.claim(queue, now, 1)[..] {
                [] => return order,
                [id] => order.push(id.clone()),
                more => panic!("{}: {more:?}", self.name),
            }
        }
    }

    fn next_due(&self, queue: &str) -> Option<f64> {
        self.conn.query_row(&file("next_due"), [queue], |row| row.get(0)).unwrap()
    }
}

#[test]
fn what_ran_out_or_came_due_goes_before_what_nobody_touched() {
    for door in doors() {
        door.enqueue(&["untouched 1", "lost 1"]);
        door.enqueue_at("urgent", -5.0);
        door.enqueue_at("delayed 2", 40.0);
        door.enqueue_at("delayed 1", 20.0);
        door.enqueue(&["lost 2", "lost 3", "held", "untouched 2"]);
        door.enqueue_at("most urgent", -6.0);
        door.enqueue_at("as urgent", -5.0);
        door.enqueue_at("early", 101.0);
        // Lost in the reverse order of the rows; 2 and 3 at the same moment.
        assert_eq!(door.claim_by_id("lost 2", 0.0, 10.0), Some(1));
        assert_eq!(door.claim_by_id("lost 3", 0.0, 10.0), Some(1));
        assert_eq!(door.claim_by_id("lost 1", 0.0, 30.0), Some(1));
        assert_eq!(door.claim_by_id("held", 0.0, 100.5), Some(1));
        let expected = [
            "lost 2",
            "lost 3",
            "delayed 1",
            "lost 1",
            "delayed 2",
            "most urgent",
            "urgent",
            "as urgent",
            "untouched 1",
            "untouched 2",
        ];
        assert_eq!(door.order("", 100.0), expected, "{}", door.name);
    }
}

#[test]
fn a_batch_takes_the_first_ones_of_that_order() {
    for door in doors() {
        door.enqueue(&["a", "b", "c", "d", "e"]);
        assert_eq!(door.claim_by_id("d", 0.0, 20.0), Some(1));
        door.enqueue_at("f", 10.0);
        assert_eq!(door.claim("", 50.0, 1), ["f"], "{}", door.name);
        assert_eq!(door.claim("", 50.0, 3), ["a", "b", "d"], "{}", door.name);
        assert_eq!(door.claim("", 50.0, 99), ["c", "e"], "{}", door.name);
        assert_eq!(door.claim("", 50.0, 99), [""; 0], "{}", door.name);
    }
}

#[test]
fn leases_that_ran_out_are_taken_up_to_the_limit_too() {
    for door in doors() {
        for id in ["a", "b", "c", "d"] {
            door.enqueue_at(id, 10.0);
        }
        assert_eq!(door.claim("", 50.0, 3), ["a", "b", "c"], "{}", door.name);
    }
}

#[test]
fn a_job_is_due_from_its_moment_on() {
    for door in doors() {
        door.enqueue_at("x", 10.0);
        let just_before = 10.0_f64.next_down();
        assert_eq!(door.claim("", just_before, 1), [""; 0], "{}", door.name);
        assert_eq!(door.claim_by_id("x", just_before, 1.0), None, "{}", door.name);
        assert_eq!(door.claim("", 10.0, 1), ["x"], "{}", door.name);
        // Taken until 20: [10, 20).
        assert_eq!(door.claim("", 20.0_f64.next_down(), 1), [""; 0], "{}", door.name);
        assert_eq!(door.claim("", 20.0, 1), ["x"], "{}", door.name);
    }
}

#[test]
fn a_clock_before_zero_sees_urgent_jobs_come_due() {
    for door in doors() {
        door.enqueue(&["plain"]);
        for (id, due) in [("a", -3.0), ("b", -7.0), ("c", 2.0)] {
            door.enqueue_at(id, due);
        }
        assert_eq!(door.order("", -5.0), ["b"], "{}", door.name);
        assert_eq!(door.claim("", 0.0, 9), ["a", "plain"], "{}", door.name);
    }
}

#[test]
fn the_queue_is_the_part_of_the_id_before_the_first_colon() {
    let queues = [
        ("mail:42", "mail"),
        ("mail:a:b", "mail"),
        ("mail:", "mail"),
        ("Mail:1", "Mail"),
        ("mail2:1", "mail2"),
        (" mail:1", " mail"),
        ("mäil:1", "mäil"),
        ("mail", ""),
        (":mail", ""),
        (":", ""),
        ("42", ""),
    ];
    for door in doors() {
        for (id, _) in queues {
            door.enqueue(&[id]);
            door.enqueue_at(&format!("{id}later"), 5.0);
        }
        let mut seen = 0;
        for queue in ["", "mail", "Mail", "mail2", " mail", "mäil", "mail:", "%", "no such"] {
            let mut expected: Vec<String> = queues
                .iter()
                .filter(|(_, of)| *of == queue)
                .flat_map(|(id, _)| [id.to_string(), format!("{id}later")])
                .collect();
            expected.sort();
            seen += expected.len();
            let due = (!expected.is_empty()).then_some(0.0);
            assert_eq!(door.next_due(queue), due, "{queue:?}");
            assert_eq!(door.claim(queue, 5.0, 99), expected, "{}: {queue:?}", door.name);
        }
        assert_eq!(seen, 2 * queues.len());
    }
}

#[test]
fn what_is_done_or_held_is_not_taken() {
    for door in doors() {
        door.enqueue(&["completed", "failed", "held"]);
        for id in ["completed", "failed", "held"] {
            assert_eq!(door.claim_by_id(id, 0.0, 10.0), Some(1));
        }
        let now = 1.0;
        assert!(door.changed("complete", &[&"completed", &"id", &1, &now, &"r"]));
        assert!(door.changed("fail", &[&"failed", &"id", &1, &now, &"e"]));
        assert_eq!(door.claim("", 9.0, 9), [""; 0], "{}", door.name);
        assert_eq!(door.next_due(""), Some(10.0));
        assert_eq!(door.claim("", 50.0, 9), ["held"], "{}", door.name);
    }
}

#[test]
fn a_job_whose_fence_is_used_up_does_not_stand_in_the_way() {
    for door in doors() {
        for (id, due) in [("urgent", -1.0), ("plain", 0.0), ("delayed", 5.0)] {
            door.enqueue_at(id, due);
            door.enqueue_at(&format!("{id}, used up"), due - 0.5);
        }
        let used_up = "UPDATE jobs SET fence = 9223372036854775807 WHERE id LIKE '%used up'";
        assert_eq!(door.conn.execute(used_up, []).unwrap(), 3);
        assert_eq!(door.next_due(""), Some(-1.0));
        assert_eq!(door.order("", 10.0), ["delayed", "urgent", "plain"], "{}", door.name);
        // Nor does it keep a worker from waiting for what comes next.
        assert_eq!(door.next_due(""), Some(20.0));
    }
}

#[test]
fn the_next_due_moment_is_that_of_the_queue() {
    for door in doors() {
        assert_eq!(door.next_due("q"), None);
        door.enqueue(&["other:1"]);
        assert_eq!(door.next_due("q"), None);
        door.enqueue_at("q:1", 7.5);
        door.enqueue_at("q:2", -7.5);
        assert_eq!(door.next_due("q"), Some(-7.5));
        assert_eq!(door.claim_by_id("q:2", 0.0, 100.0), Some(1));
        assert_eq!(door.next_due("q"), Some(7.5));
    }
}

#[test]
fn a_release_may_name_the_moment_of_the_next_attempt() {
    for door in doors() {
        door.enqueue(&["a", "b", "c"]);
        for id in ["a", "b", "c"] {
            assert_eq!(door.claim_by_id(id, 0.0, 10.0), Some(1));
        }
        let before = jobs(&door.conn);
        for (id, owner, fence) in [("a", "x", 1), ("a", "id", 0), ("a", "id", 2), ("x", "id", 1)] {
            assert!(!door.changed("release_at", &[&id, &owner, &fence, &30.0]), "{id} {owner}");
        }
        assert_eq!(jobs(&door.conn), before, "{}", door.name);
        assert!(door.changed("release_at", &[&"a", &"id", &1, &30.0]));
        assert!(door.changed("release_at", &[&"b", &"id", &1, &-1]));
        // A client that binds text, after the lease ran out.
        assert!(door.changed("release_at", &[&"c", &"id", &"1", &"25"]));
        assert!(!door.changed("release_at", &[&"a", &"id", &1, &30.0]), "released already");
        let expected = [
            "'a' NULL 30.0 1 NULL 0".to_string(),
            "'b' NULL -1.0 1 NULL 0".to_string(),
            "'c' NULL 25.0 1 NULL 0".to_string(),
        ];
        assert_eq!(jobs(&door.conn), expected, "{}", door.name);
        assert_eq!(door.order("", 29.0), ["c", "b"], "{}", door.name);
        assert_eq!(door.order("", 30.0), ["a"], "{}", door.name);
    }
}

#[test]
fn a_finished_job_is_not_released_for_later() {
    for door in doors() {
        door.enqueue(&["a"]);
        assert_eq!(door.claim_by_id("a", 0.0, 10.0), Some(1));
        assert!(door.changed("complete", &[&"a", &"id", &1, &1.0, &"r"]));
        let before = jobs(&door.conn);
        assert!(!door.changed("release_at", &[&"a", &"id", &1, &30.0]));
        assert_eq!(jobs(&door.conn), before, "{}", door.name);
    }
}

#[test]
fn enqueueing_again_for_another_moment_changes_nothing() {
    for door in doors() {
        door.enqueue_at("a", 5.0);
        assert_eq!(door.claim_by_id("a", 5.0, 10.0), Some(1));
        let before = jobs(&door.conn);
        assert!(!door.changed("enqueue_at", &[&"a", &-1.0]), "{}", door.name);
        assert_eq!(jobs(&door.conn), before, "{}", door.name);
    }
}

#[test]
fn attempts_are_not_failures() {
    for door in doors() {
        door.enqueue(&["q:a"]);
        for attempt in 1..=20_i64 {
            assert_eq!(door.claim("q", 0.0, 1), ["q:a"]);
            assert!(door.changed("release", &[&"q:a", &"w", &attempt]));
        }
        assert_eq!(jobs(&door.conn), ["'q:a' NULL 0.0 20 NULL 0"], "{}", door.name);
        let status = "SELECT state || fence FROM fence_status";
        assert_eq!(one::<String>(&door.conn, status), "free20", "{}", door.name);
    }
}

#[test]
fn without_its_index_a_claim_says_which_call_makes_it() {
    for door in doors() {
        door.conn.execute_batch("DROP INDEX fence_queue").unwrap();
        door.enqueue(&["a"]);
        let error = door.try_claim(&[&"w", &1.0, &1.0, &1, &""]).unwrap_err().to_string();
        if door.plain {
            assert_eq!(error, "no such index: fence_queue");
            continue;
        }
        let sentence =
            "fence_claim_batch: no such index: fence_queue (fence_init_queue() makes it)";
        let claim = "SELECT id FROM fence_claim_batch('w', 1, 1, 1)";
        assert_eq!(error_of(&door.conn, claim), (1, sentence.into()));
        // Made twice is made once, and the statement that failed works now.
        for _ in 0..2 {
            assert_eq!(one::<i64>(&door.conn, "SELECT fence_init_queue()"), 1);
        }
        assert_eq!(one::<String>(&door.conn, claim), "a");
    }
}

#[test]
fn the_queue_index_needs_the_job_table() {
    let scratch = Scratch::new();
    let conn = scratch.loaded();
    let sentence = "fence_init_queue: no such table: main.jobs (fence_init() makes it)";
    assert_eq!(error_of(&conn, "SELECT fence_init_queue()"), (1, sentence.into()));
}
