//! The C entry point and the host that calls it: one that is too old, and a second SQLite
//! library in the process, are refused in a sentence. What is tried here is remembered by the
//! library for the whole process, so it has a test binary of its own.
#![cfg(unix)]
mod common;

use common::{add_jobs, one, Scratch, WRITES};
use rusqlite::{ffi, Connection};
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, symbol: *const c_char) -> *mut c_void;
}

type EntryPoint = unsafe extern "C" fn(*mut ffi::sqlite3, *mut *mut c_char, *const usize) -> c_int;

fn entry_point() -> EntryPoint {
    const RTLD_NOW: c_int = 2;
    let file = CString::new(common::extension().to_str().unwrap()).unwrap();
    // SAFETY: the symbol is a function of that type, and the library is never closed.
    unsafe {
        let library = dlopen(file.as_ptr(), RTLD_NOW);
        assert!(!library.is_null());
        let symbol = dlsym(library, c"sqlite3_fence_init".as_ptr());
        assert!(!symbol.is_null());
        std::mem::transmute::<*mut c_void, EntryPoint>(symbol)
    }
}

/// The places of two functions in SQLite's table, which never change, and a length that every
/// version since 3.35 has.
const LIBVERSION_NUMBER: usize = 67;
const MALLOC: usize = 68;
const LENGTH: usize = 200;

/// Calls the entry point as a SQLite library would that has this table.
fn load_by(table: &[usize; LENGTH], conn: &Connection) -> (c_int, String) {
    let mut message: *mut c_char = ptr::null_mut();
    // SAFETY: the connection is open; the message comes from the allocator in the table.
    unsafe {
        let rc = entry_point()(conn.handle(), &mut message, table.as_ptr());
        assert!(!message.is_null());
        let sentence = CStr::from_ptr(message).to_str().unwrap().to_string();
        ffi::sqlite3_free(message.cast());
        (rc, sentence)
    }
}

fn table_of(version: extern "C" fn() -> c_int) -> [usize; LENGTH] {
    let mut table = [0; LENGTH];
    table[LIBVERSION_NUMBER] = version as *const () as usize;
    table[MALLOC] = ffi::sqlite3_malloc as *const () as usize;
    table
}

#[test]
fn a_host_older_than_3_35_is_told_what_is_needed() {
    extern "C" fn v3_34_0() -> c_int {
        3_034_000
    }
    extern "C" fn v3_8_11() -> c_int {
        3_008_011
    }
    let needs = "sqlite-fence needs SQLite 3.35 or newer, this is";
    let conn = Connection::open_in_memory().unwrap();
    for (version, name) in [(v3_34_0 as extern "C" fn() -> c_int, "3.34.0"), (v3_8_11, "3.8.11")] {
        let refused = (ffi::SQLITE_ERROR, format!("{needs} {name}"));
        assert_eq!(load_by(&table_of(version), &conn), refused);
        let count = "SELECT count(*) FROM pragma_function_list WHERE name LIKE 'fence%'";
        assert_eq!(one::<i64>(&conn, count), 0);
    }

    // Neither a caller without use for the sentence nor one without memory is a problem.
    let mut table = table_of(v3_34_0);
    // SAFETY: as a host may call it.
    let rc = unsafe { entry_point()(conn.handle(), ptr::null_mut(), table.as_ptr()) };
    assert_eq!(rc, ffi::SQLITE_ERROR);
    extern "C" fn out_of_memory(_: c_int) -> *mut c_void {
        ptr::null_mut()
    }
    table[MALLOC] = out_of_memory as *const () as usize;
    let mut message: *mut c_char = ptr::null_mut();
    // SAFETY: as a host may call it.
    let rc = unsafe { entry_point()(conn.handle(), &mut message, table.as_ptr()) };
    assert_eq!((rc, message), (ffi::SQLITE_ERROR, ptr::null_mut()));

    // The refusal is not remembered.
    common::load(&conn).unwrap();
    add_jobs(&conn);
}

static TABLE: AtomicPtr<usize> = AtomicPtr::new(ptr::null_mut());

/// An extension that only keeps the table that SQLite gives to extensions.
unsafe extern "C" fn keep_table(
    _: *mut ffi::sqlite3,
    _: *mut *mut c_char,
    table: *const ffi::sqlite3_api_routines,
) -> c_int {
    TABLE.store(table.cast_mut().cast(), Ordering::Release);
    ffi::SQLITE_OK
}

#[test]
fn a_second_sqlite_library_is_refused_and_the_first_one_goes_on() {
    let scratch = Scratch::new();
    let conn = scratch.loaded();
    add_jobs(&conn);

    // SAFETY: the function has the type that SQLite asks for, and the table has this length.
    let second: [usize; LENGTH] = unsafe {
        assert_eq!(ffi::sqlite3_auto_extension(Some(keep_table)), ffi::SQLITE_OK);
        drop(Connection::open_in_memory().unwrap());
        ffi::sqlite3_cancel_auto_extension(Some(keep_table));
        ptr::read(TABLE.load(Ordering::Acquire).cast())
    };
    assert_eq!(second[MALLOC], ffi::sqlite3_malloc as *const () as usize, "the table is SQLite's");

    let theirs = Connection::open_in_memory().unwrap();
    for _ in 0..2 {
        let (rc, sentence) = load_by(&second, &theirs);
        assert_eq!(rc, ffi::SQLITE_ERROR);
        assert_eq!(
            sentence,
            "sqlite-fence is in use by another SQLite library of this process; \
             use one of the two, or two processes"
        );
        let missing = (1, "no such function: fence_version".to_string());
        assert_eq!(common::error_of(&theirs, "SELECT fence_version()"), missing);
    }

    for call in [WRITES[0], WRITES[1], WRITES[3], WRITES[5]] {
        assert_eq!(one::<i64>(&conn, &format!("SELECT {call}")), 1, "{call}");
    }
    let another = scratch.loaded();
    assert_eq!(one::<i64>(&another, "SELECT fence_enqueue('another')"), 1);
    conn.close().unwrap();
}
