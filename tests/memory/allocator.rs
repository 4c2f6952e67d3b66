//! SQLite's allocator, of which each thread can let its own allocations fail.
use rusqlite::ffi;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

/// The allocation to fail, counted from 0, and with `sticky` all later ones.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub at: usize,
    pub sticky: bool,
}

#[derive(Clone, Copy)]
struct State {
    counting: bool,
    plan: Option<Plan>,
    count: usize,
    failed: bool,
}

const IDLE: State = State { counting: false, plan: None, count: 0, failed: false };

thread_local! {
    // Without a destructor, so that the allocator may use it at any time.
    static STATE: Cell<State> = const { Cell::new(IDLE) };
}

/// Counts this thread's allocations from here on, and fails as planned.
pub fn arm(plan: Option<Plan>) {
    STATE.set(State { counting: true, plan, ..IDLE });
}

/// Nothing fails any more: how many allocations there were, and whether one failed.
pub fn disarm() -> (usize, bool) {
    let state = STATE.replace(IDLE);
    (state.count, state.failed)
}

fn fails() -> bool {
    let mut state = STATE.get();
    if !state.counting {
        return false;
    }
    let number = state.count;
    state.count += 1;
    let fails = state.plan.is_some_and(|p| number == p.at || p.sticky && number > p.at);
    state.failed |= fails;
    STATE.set(state);
    fails
}

/// SQLite's own methods.
struct Real(ffi::sqlite3_mem_methods);

// SAFETY: functions that any thread may call; nothing uses the data of an application.
unsafe impl Send for Real {}
// SAFETY: as above.
unsafe impl Sync for Real {}

static REAL: OnceLock<Real> = OnceLock::new();

unsafe extern "C" fn malloc(size: c_int) -> *mut c_void {
    if fails() {
        return ptr::null_mut();
    }
    // SAFETY: SQLite's own method with SQLite's argument.
    unsafe { REAL.get().unwrap().0.xMalloc.unwrap()(size) }
}

unsafe extern "C" fn realloc(old: *mut c_void, size: c_int) -> *mut c_void {
    if fails() {
        return ptr::null_mut();
    }
    // SAFETY: as above.
    unsafe { REAL.get().unwrap().0.xRealloc.unwrap()(old, size) }
}

/// Puts the allocator in place. To be called before anything else in each test: SQLite takes it
/// only before it is initialised. Without lookaside, which would serve small allocations.
pub fn install() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        // SAFETY: SQLite is not initialised yet, so its configuration may change.
        unsafe {
            let mut methods: ffi::sqlite3_mem_methods = std::mem::zeroed();
            let rc = ffi::sqlite3_config(ffi::SQLITE_CONFIG_GETMALLOC, &mut methods);
            assert_eq!(rc, ffi::SQLITE_OK, "SQLite is initialised already");
            assert!(REAL.set(Real(methods)).is_ok());
            methods.xMalloc = Some(malloc);
            methods.xRealloc = Some(realloc);
            assert_eq!(ffi::sqlite3_config(ffi::SQLITE_CONFIG_MALLOC, &methods), ffi::SQLITE_OK);
            let rc = ffi::sqlite3_config(ffi::SQLITE_CONFIG_LOOKASIDE, 0, 0);
            assert_eq!(rc, ffi::SQLITE_OK);
        }
    });
}
