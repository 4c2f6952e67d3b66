//! The disk of a directory, as the tests see it: its I/O points are numbered, one of them or all
//! from one on fail, and what a power cut could lose is written down.
use rusqlite::ffi;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, CStr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::powercut::{Event, Inode, Recorder};
use crate::shim;

/// What SQLite asks of the disk: each call is a point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Io {
    Open,
    Read,
    Write,
    Sync,
    Truncate,
    Delete,
    Access,
    Size,
    Lock,
    /// A page of the index of the log, which connections share.
    Map,
    MapLock,
}

/// How a point fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// No space: the write leaves nothing.
    Full,
    /// No space after the first half of a write.
    Short,
    /// The device reports an error.
    Error,
    /// The lock is another's.
    Busy,
    /// The name is deleted, but the directory could not be synced.
    Unsynced,
}

impl Io {
    pub fn faults(self) -> &'static [Fault] {
        match self {
            Io::Write => &[Fault::Full, Fault::Short, Fault::Error],
            Io::Delete => &[Fault::Error, Fault::Unsynced],
            Io::Lock | Io::MapLock => &[Fault::Busy, Fault::Error],
            _ => &[Fault::Error],
        }
    }

    /// The code that SQLite's own VFS gives for the fault.
    pub fn code(self, fault: Fault) -> c_int {
        match (fault, self) {
            (Fault::Full | Fault::Short, _) => ffi::SQLITE_FULL,
            (Fault::Busy, _) => ffi::SQLITE_BUSY,
            (Fault::Unsynced, _) => ffi::SQLITE_IOERR_DIR_FSYNC,
            (Fault::Error, Io::Open) => ffi::SQLITE_CANTOPEN,
            (Fault::Error, Io::Read) => ffi::SQLITE_IOERR_READ,
            (Fault::Error, Io::Write) => ffi::SQLITE_IOERR_WRITE,
            (Fault::Error, Io::Sync) => ffi::SQLITE_IOERR_FSYNC,
            (Fault::Error, Io::Truncate) => ffi::SQLITE_IOERR_TRUNCATE,
            (Fault::Error, Io::Delete) => ffi::SQLITE_IOERR_DELETE,
            (Fault::Error, Io::Access) => ffi::SQLITE_IOERR_ACCESS,
            (Fault::Error, Io::Size) => ffi::SQLITE_IOERR_FSTAT,
            (Fault::Error, Io::Lock) => ffi::SQLITE_IOERR_LOCK,
            (Fault::Error, Io::Map) => ffi::SQLITE_IOERR_SHMMAP,
            (Fault::Error, Io::MapLock) => ffi::SQLITE_IOERR_SHMLOCK,
        }
    }
}

/// The fault to come: at the point `at`, counted from 0, and with `sticky` at every later point
/// of the same kind.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub at: usize,
    pub fault: Fault,
    pub sticky: bool,
}

/// The disk of one directory.
#[derive(Default)]
pub struct Disk(Mutex<State>);

#[derive(Default)]
struct State {
    counting: bool,
    plan: Option<Plan>,
    points: Vec<Io>,
    failing: Option<(Io, Fault)>,
    recorder: Option<Recorder>,
}

static DISKS: Mutex<BTreeMap<PathBuf, Arc<Disk>>> = Mutex::new(BTreeMap::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disk {
    /// The disk of a directory, from now on until it is dropped with `forget`.
    pub fn of(dir: &Path) -> Arc<Disk> {
        shim::install();
        let disk = Arc::<Disk>::default();
        lock(&DISKS).insert(dir.to_owned(), Arc::clone(&disk));
        disk
    }

    pub fn forget(dir: &Path) {
        lock(&DISKS).remove(dir);
    }

    /// Counts points from here on, and fails as planned.
    pub fn arm(&self, plan: Option<Plan>) {
        let mut state = lock(&self.0);
        *state =
            State { counting: true, plan, recorder: state.recorder.take(), ..State::default() };
    }

    /// Nothing fails any more. The points that there were, and what failed first.
    pub fn disarm(&self) -> (Vec<Io>, Option<(Io, Fault)>) {
        let mut state = lock(&self.0);
        (state.counting, state.plan) = (false, None);
        (std::mem::take(&mut state.points), state.failing.take())
    }

    pub fn record(&self, recorder: Recorder) {
        lock(&self.0).recorder = Some(recorder);
    }

    /// Where the events of a file belong.
    pub fn inode(&self, name: &str) -> Inode {
        lock(&self.0).recorder.as_ref().map_or(0, |recorder| recorder.inode(name))
    }

    /// The operation under way was answered.
    pub fn answered(&self) {
        self.note(|_| Event::Answered);
    }

    pub fn recorded(&self) -> Recorder {
        lock(&self.0).recorder.take().expect("recording")
    }

    /// Passes a point: the fault that it is to have.
    pub fn point(&self, io: Io) -> Option<Fault> {
        let mut state = lock(&self.0);
        if !state.counting {
            return None;
        }
        let number = state.points.len();
        state.points.push(io);
        let plan = state.plan?;
        let again = plan.sticky && state.failing.is_some_and(|(first, _)| first == io);
        if number != plan.at && !again {
            return None;
        }
        state.failing.get_or_insert((io, plan.fault));
        Some(plan.fault)
    }

    pub fn note(&self, event: impl FnOnce(&mut Recorder) -> Event) {
        if let Some(recorder) = &mut lock(&self.0).recorder {
            let event = event(recorder);
            recorder.events.push(event);
        }
    }
}

/// The directory's disk and the file's name in it.
pub fn find(path: *const c_char) -> Option<(Arc<Disk>, String)> {
    if path.is_null() {
        return None;
    }
    // SAFETY: SQLite passes a C string.
    let path = Path::new(unsafe { CStr::from_ptr(path) }.to_str().ok()?);
    let disk = Arc::clone(lock(&DISKS).get(path.parent()?)?);
    Some((disk, path.file_name()?.to_str()?.to_owned()))
}
