//! Memory runs out while the functions are added to a connection, and while it is closed.
use rusqlite::{ffi, Connection};
use std::ffi::{c_char, c_int, CStr, CString};

use crate::allocator::{self, Plan};
use crate::bench::memory_backed;
use crate::calls::plans;
use crate::common::{self, one};
use crate::operations::{outside, template, Door, Kind, Operation};

/// Loads the extension and answers SQLite's code, with the sentence.
fn load(conn: &Connection) -> (c_int, Option<String>) {
    let file = CString::new(common::extension().to_str().unwrap()).unwrap();
    let mut message: *mut c_char = std::ptr::null_mut();
    // SAFETY: the connection is open; SQLite allocates the message and we free it.
    unsafe {
        ffi::sqlite3_enable_load_extension(conn.handle(), 1);
        let rc = ffi::sqlite3_load_extension(
            conn.handle(),
            file.as_ptr(),
            std::ptr::null(),
            &mut message,
        );
        let sentence =
            (!message.is_null()).then(|| CStr::from_ptr(message).to_str().unwrap().into());
        ffi::sqlite3_free(message.cast());
        (rc, sentence)
    }
}

fn register(conn: &Connection) -> (c_int, Option<String>) {
    match fence::register(conn) {
        Ok(()) => (ffi::SQLITE_OK, None),
        Err(e) => (e.extended_code(), Some(e.to_string())),
    }
}

type Add = fn(&Connection) -> (c_int, Option<String>);

fn add_without_memory(name: &str, add: Add) {
    allocator::install();
    let conn = Connection::open_in_memory().unwrap();
    allocator::arm(None);
    assert_eq!(add(&conn).0, ffi::SQLITE_OK);
    let plans = plans(allocator::disarm().0);
    conn.close().unwrap();
    let (begun, mut failed) = (std::time::Instant::now(), 0);
    for &plan in &plans {
        for next in [Next::Close, Next::Use] {
            let conn = Connection::open_in_memory().unwrap();
            allocator::arm(Some(plan));
            let (rc, sentence) = add(&conn);
            let (_, reached) = allocator::disarm();
            assert!(reached, "{plan:?}");
            let told = matches!(rc, ffi::SQLITE_OK | ffi::SQLITE_NOMEM | ffi::SQLITE_ERROR);
            assert!(told, "{plan:?}: {rc} {sentence:?}");
            failed += usize::from(rc != ffi::SQLITE_OK);
            assert_eq!(one::<i64>(&conn, "SELECT 1"), 1);
            if let Next::Use = next {
                assert_eq!(add(&conn), (ffi::SQLITE_OK, None), "{plan:?}");
                use_and_add_again(&conn, add, plan);
            }
            conn.close().unwrap_or_else(|(_, e)| panic!("{plan:?}, close: {e}"));
        }
    }
    eprintln!(
        "{name}: {} faults, {} tries, {failed} failed; {:.1} s",
        plans.len(),
        2 * plans.len(),
        begun.elapsed().as_secs_f64()
    );
    assert!(failed > 0, "no fault mattered");
}

enum Next {
    Close,
    Use,
}

fn use_and_add_again(conn: &Connection, add: Add, plan: Plan) {
    template(conn);
    let mut open = conn.prepare("SELECT fence_state(id) FROM jobs").unwrap();
    let mut rows = open.query([]).unwrap();
    rows.next().unwrap().expect("a first row");
    // While a statement runs no function could be replaced.
    assert_eq!(add(conn), (ffi::SQLITE_OK, None), "{plan:?}");
    rows.next().unwrap().expect("a second row");
    drop(rows);
    assert_eq!(one::<i64>(conn, "SELECT fence_claim('free', 'A', 0, 1)"), 1);
}

#[test]
fn an_extension_that_could_not_be_loaded_for_want_of_memory_can_be_loaded_later() {
    add_without_memory("loading", load);
}

#[test]
fn functions_that_could_not_be_registered_for_want_of_memory_can_be_registered_later() {
    add_without_memory("registering", register);
}

#[test]
fn a_connection_closes_without_memory() {
    allocator::install();
    for kind in [Kind::Registered, Kind::Loaded] {
        let scratch = memory_backed();
        let conn = Connection::open(scratch.db()).unwrap();
        conn.pragma_update(None, "journal_mode", "wal").unwrap();
        fence::register(&conn).unwrap();
        template(&conn);
        conn.close().unwrap();
        let mut door = Door::open(kind, &scratch.db());
        door.run(&Operation::Claim("free".into(), "A", 0.0)).unwrap();
        let Door::Sql(conn) = door else { unreachable!("a connection") };
        allocator::arm(Some(Plan { at: 0, sticky: true }));
        let closed = conn.close();
        allocator::disarm();
        closed.unwrap_or_else(|(_, e)| panic!("{kind:?}: {e}"));
        assert_eq!(
            one::<i64>(&outside(&scratch.db()), "SELECT fence FROM jobs WHERE id = 'free'"),
            1
        );
    }
}
