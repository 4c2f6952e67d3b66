//! A VFS over the default one, which asks a directory's disk at each I/O point.
use rusqlite::ffi;
use std::ffi::{c_char, c_int, c_void, CStr};
use std::path::Path;
use std::ptr;
use std::sync::{Arc, OnceLock};

use crate::disk::{find, Disk, Fault, Io};
use crate::powercut::Event;

/// A file of the shim; that of the default VFS follows it in memory.
#[repr(C)]
struct File {
    base: ffi::sqlite3_file,
    disk: Option<Arc<Disk>>,
    inode: usize,
    /// The first sync of a new journal or log makes its name durable too.
    sync_directory: bool,
}

/// # Safety
/// `file` is one that `open` made.
unsafe fn parts<'a>(file: *mut ffi::sqlite3_file) -> (&'a mut File, *mut ffi::sqlite3_file) {
    let file = file.cast::<File>();
    // SAFETY: SQLite gave room for both.
    unsafe { (&mut *file, file.add(1).cast()) }
}

fn real() -> *mut ffi::sqlite3_vfs {
    static REAL: OnceLock<usize> = OnceLock::new();
    // SAFETY: a VFS that SQLite has registered stays.
    *REAL.get_or_init(|| unsafe { ffi::sqlite3_vfs_find(c"unix".as_ptr()) } as usize)
        as *mut ffi::sqlite3_vfs
}

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite calls us as it calls any VFS, with room for szOsFile bytes.
    unsafe {
        (*file).pMethods = ptr::null();
        let disk = find(name);
        if let Some(fault) = disk.as_ref().and_then(|(disk, _)| disk.point(Io::Open)) {
            return Io::Open.code(fault);
        }
        let existed = disk.is_some()
            && Path::new(CStr::from_ptr(name).to_str().unwrap()).try_exists().unwrap();
        let (_, inner) = parts(file);
        let rc = (*real()).xOpen.unwrap()(real(), name, inner, flags, out);
        if rc != ffi::SQLITE_OK {
            return rc;
        }
        let created = flags & ffi::SQLITE_OPEN_CREATE != 0;
        let journal = ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_WAL;
        let mut inode = 0;
        if let Some((disk, name)) = &disk {
            if !existed {
                disk.note(|recorder| Event::Create(name.clone(), recorder.create(name)));
            }
            inode = disk.inode(name);
        }
        ptr::write(
            file.cast::<File>(),
            File {
                base: ffi::sqlite3_file { pMethods: &METHODS },
                disk: disk.map(|(disk, _)| disk),
                inode,
                sync_directory: created && flags & journal != 0,
            },
        );
        ffi::SQLITE_OK
    }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: the file is ours and closed once.
    unsafe {
        let (ours, inner) = parts(file);
        let rc = (*(*inner).pMethods).xClose.unwrap()(inner);
        ptr::drop_in_place(ours);
        rc
    }
}

/// Passes a point of a file: returns from the method if it is to fail.
macro_rules! point {
    ($ours:expr, $io:expr) => {
        if let Some(fault) = $ours.disk.as_ref().and_then(|disk| disk.point($io)) {
            return $io.code(fault);
        }
    };
}

/// A method that is a point, and then whatever the default VFS does.
macro_rules! methods {
    ($($name:ident = $method:ident($($arg:ident: $kind:ty),*) $(at $io:expr)?;)*) => {$(
        unsafe extern "C" fn $name(file: *mut ffi::sqlite3_file, $($arg: $kind),*) -> c_int {
            // SAFETY: the file is ours, the arguments are SQLite's.
            unsafe {
                let (_ours, inner) = parts(file);
                $(point!(_ours, $io);)?
                (*(*inner).pMethods).$method.unwrap()(inner, $($arg),*)
            }
        }
    )*};
}

methods! {
    read = xRead(to: *mut c_void, count: c_int, offset: i64) at Io::Read;
    size = xFileSize(out: *mut i64) at Io::Size;
    lock_file = xLock(level: c_int) at Io::Lock;
    unlock = xUnlock(level: c_int);
    reserved = xCheckReservedLock(out: *mut c_int);
    control = xFileControl(op: c_int, argument: *mut c_void);
    sector = xSectorSize();
    device = xDeviceCharacteristics();
    shm_map = xShmMap(page: c_int, size: c_int, extend: c_int, out: *mut *mut c_void) at Io::Map;
    shm_unmap = xShmUnmap(delete: c_int);
}

/// Locks of the shared memory: taking one is a point, giving it back cannot fail.
unsafe extern "C" fn shm_lock(
    file: *mut ffi::sqlite3_file,
    offset: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        let (ours, inner) = parts(file);
        if flags & ffi::SQLITE_SHM_LOCK != 0 {
            point!(ours, Io::MapLock);
        }
        (*(*inner).pMethods).xShmLock.unwrap()(inner, offset, count, flags)
    }
}

unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    // SAFETY: as above.
    unsafe {
        let (_, inner) = parts(file);
        (*(*inner).pMethods).xShmBarrier.unwrap()(inner);
    }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    count: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        let (ours, inner) = parts(file);
        let put = |count| (*(*inner).pMethods).xWrite.unwrap()(inner, from, count, offset);
        if let Some(disk) = &ours.disk {
            match disk.point(Io::Write) {
                Some(fault) => {
                    if fault == Fault::Short {
                        put(count / 2);
                    }
                    return Io::Write.code(fault);
                }
                None => disk.note(|_| {
                    let bytes = std::slice::from_raw_parts(from.cast::<u8>(), count as usize);
                    Event::Write(ours.inode, offset as usize, bytes.into())
                }),
            }
        }
        put(count)
    }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    // SAFETY: as above.
    unsafe {
        let (ours, inner) = parts(file);
        point!(ours, Io::Truncate);
        if let Some(disk) = &ours.disk {
            disk.note(|_| Event::Truncate(ours.inode, size as usize));
        }
        (*(*inner).pMethods).xTruncate.unwrap()(inner, size)
    }
}

/// Nothing is asked of the real disk: the kernel keeps what the tests look at.
unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    // SAFETY: as above.
    let (ours, _) = unsafe { parts(file) };
    point!(ours, Io::Sync);
    if let Some(disk) = &ours.disk {
        let directory = std::mem::take(&mut ours.sync_directory);
        disk.note(|_| Event::Sync(ours.inode, directory));
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn delete(_: *mut ffi::sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    // SAFETY: as above.
    unsafe {
        let found = find(name);
        let fault = found.as_ref().and_then(|(disk, _)| disk.point(Io::Delete));
        if fault == Some(Fault::Error) {
            return Io::Delete.code(Fault::Error);
        }
        let rc = (*real()).xDelete.unwrap()(real(), name, 0);
        if let Some(fault) = fault {
            return Io::Delete.code(fault);
        }
        if let Some((disk, name)) = found.filter(|_| rc == ffi::SQLITE_OK) {
            disk.note(|recorder| {
                recorder.delete(&name);
                Event::Delete(name, sync != 0)
            });
        }
        rc
    }
}

unsafe extern "C" fn access(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        if let Some(fault) = find(name).and_then(|(disk, _)| disk.point(Io::Access)) {
            return Io::Access.code(fault);
        }
        (*real()).xAccess.unwrap()(real(), name, flags, out)
    }
}

/// SQLite sleeps between attempts to get a lock of the log that is never to be had here.
unsafe extern "C" fn sleep(_: *mut ffi::sqlite3_vfs, microseconds: c_int) -> c_int {
    std::thread::yield_now();
    microseconds
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    // Without memory-mapped files, which version 3 adds.
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(size),
    xLock: Some(lock_file),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(reserved),
    xFileControl: Some(control),
    xSectorSize: Some(sector),
    xDeviceCharacteristics: Some(device),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// Registers the shim as the default VFS, once.
pub fn install() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        // SAFETY: the copy of the VFS lives as long as the process.
        unsafe {
            assert_eq!(ffi::sqlite3_initialize(), ffi::SQLITE_OK);
            let mut vfs = *real();
            vfs.szOsFile += size_of::<File>() as c_int;
            vfs.zName = c"shim".as_ptr();
            vfs.pNext = ptr::null_mut();
            vfs.xOpen = Some(open);
            vfs.xDelete = Some(delete);
            vfs.xAccess = Some(access);
            vfs.xSleep = Some(sleep);
            let rc = ffi::sqlite3_vfs_register(Box::leak(Box::new(vfs)), 1);
            assert_eq!(rc, ffi::SQLITE_OK);
        }
    });
}
