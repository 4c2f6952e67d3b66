//! The same library in every SQLite from 3.35 on, and refused with a sentence by what is older.
use std::path::Path;

use crate::common::tier::scale;
use crate::host::run;
use crate::sqlites::{Sqlite, BETWEEN, OLDEST, TOO_OLD, WITH_JSON};
use crate::tales::{self, Tale};

fn tell(sqlite: &Sqlite) {
    let Some(host) = sqlite.host() else { return };
    let mut tale = Tale::default();
    tale.open(0, Path::new(":memory:"));
    tale.says(0, "SELECT sqlite_version()", sqlite.version);
    tale.close(0);
    run(&host, &tale.steps);
    tales::vectors(&host);
    tales::stale_worker(&host);
    tales::busy(&host);
    tales::every_function(&host, sqlite.json);
}

#[test]
fn sqlite_3_35_without_json_functions_lacks_only_the_batches_in_json() {
    tell(&OLDEST);
}

#[test]
fn sqlite_3_37_does_everything() {
    tell(&WITH_JSON);
}

#[test]
fn the_versions_between_do_everything() {
    match scale(false, true, true) {
        true => BETWEEN.iter().for_each(tell),
        false => eprintln!("not in the fast tier"),
    }
}

#[test]
fn sqlite_3_33_is_told_what_is_needed_and_goes_on_without() {
    let Some(host) = TOO_OLD.host() else { return };
    let mut tale = Tale::default();
    let sentence = "sqlite-fence needs SQLite 3.35 or newer, this is 3.33.0";
    // More than once: a refusal is not remembered.
    for _ in 0..2 {
        tale.fails(0, ".open\tt::memory:", 1, sentence);
        tale.says(0, "SELECT sqlite_version()", TOO_OLD.version);
        tale.fails(0, "SELECT fence_version()", 1, "no such function: fence_version");
        tale.says(0, "SELECT count(*) FROM pragma_function_list WHERE name LIKE 'fence%'", "0");
        tale.close(0);
    }
    run(&host, &tale.steps);
}
