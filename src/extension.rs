//! The C entry point of the loadable extension.
use rusqlite::ffi;
use std::ffi::{c_char, c_int, CString};
use std::panic::catch_unwind;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::functions::FUNCTIONS;
use crate::host;

/// RETURNING came with 3.35.
const OLDEST: c_int = 3_035_000;

/// The API table of the SQLite library that loaded us first.
static LIBRARY: AtomicPtr<ffi::sqlite3_api_routines> = AtomicPtr::new(ptr::null_mut());

/// SQLite calls this when it loads `libfence.so`: it registers the functions and touches no file.
///
/// # Safety
/// To be called by SQLite only, with an open connection and its table of functions.
#[no_mangle]
pub unsafe extern "C" fn sqlite3_fence_init(
    db: *mut ffi::sqlite3,
    message: *mut *mut c_char,
    api: *mut ffi::sqlite3_api_routines,
) -> c_int {
    // SAFETY: SQLite passes valid pointers, and a panic must not cross into C.
    match catch_unwind(|| unsafe { load(db, api) }) {
        Ok(Ok(())) => ffi::SQLITE_OK,
        Ok(Err(sentence)) => {
            // SAFETY: as above.
            unsafe { report(message, api, &sentence) };
            ffi::SQLITE_ERROR
        }
        Err(_) => ffi::SQLITE_ERROR,
    }
}

/// # Safety
/// As for the entry point.
unsafe fn load(db: *mut ffi::sqlite3, api: *mut ffi::sqlite3_api_routines) -> Result<(), String> {
    // SAFETY: the table is SQLite's, and this entry stands in it since the first loadable version.
    let version = unsafe { (*api).libversion_number.map_or(0, |version| version()) };
    if version < OLDEST {
        return Err(format!(
            "sqlite-fence needs SQLite 3.35 or newer, this is {}.{}.{}",
            version / 1_000_000,
            version / 1_000 % 1_000,
            version % 1_000
        ));
    }
    // The table is kept for the whole process: with a second library's it would open the first
    // one's connections through foreign code.
    let first = LIBRARY.compare_exchange(ptr::null_mut(), api, Ordering::AcqRel, Ordering::Acquire);
    if first.is_err_and(|first| first != api) {
        return Err("sqlite-fence is in use by another SQLite library of this process; \
             use one of the two, or two processes"
            .into());
    }
    // SAFETY: the table is new enough for what rusqlite takes from it.
    unsafe { ffi::rusqlite_extension_init2(api) }.map_err(|e| format!("sqlite-fence: {e:?}"))?;
    // SAFETY: SQLite keeps the connection open while it loads us.
    unsafe { host::register_on(db, FUNCTIONS) }.map_err(|e| format!("sqlite-fence: {e}"))
}

/// # Safety
/// As for the entry point.
unsafe fn report(message: *mut *mut c_char, api: *mut ffi::sqlite3_api_routines, sentence: &str) {
    let Ok(sentence) = CString::new(sentence) else { return };
    let bytes = sentence.as_bytes_with_nul();
    // SAFETY: SQLite frees the message with its own allocator, so it must come from there.
    unsafe {
        let Some(malloc) = (*api).malloc else { return };
        if message.is_null() {
            return;
        }
        let copy = malloc(bytes.len() as c_int).cast::<c_char>();
        if !copy.is_null() {
            ptr::copy_nonoverlapping(bytes.as_ptr().cast(), copy, bytes.len());
            *message = copy;
        }
    }
}
