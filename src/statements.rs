//! The table-valued view `fence_statements(name, sql)`: the protocol as text.
//!
//! It has a second duty. Kept statements would make `sqlite3_close()` fail and leave `-wal` files
//! behind; SQLite disconnects virtual tables before it looks for open statements, so this one,
//! connected at the first call, takes ours along.
use rusqlite::vtab::{Context, Filters, IndexInfo, Module, VTab, VTabConnection, VTabCursor};
use rusqlite::{ffi, Result};
use std::borrow::Cow;
use std::ffi::{c_int, CStr};
use std::rc::Rc;

use crate::host::{Host, Share};
use crate::operation::FILES;

const NAME: &CStr = c"fence_statements";

pub(crate) fn create_module(host: &Rc<Host>) -> Result<()> {
    const MODULE: &Module<'static, Table> = &Module::eponymous_only_module();
    host.session.connection().create_module(NAME, MODULE, Some(Share(Rc::clone(host))))
}

/// Connects the table once, before the first statement is kept.
pub(crate) fn connect(host: &Host) -> Result<()> {
    if !host.guarded.get() {
        // A file may have a table of this name, but not in temp.
        host.session.connection().prepare("SELECT 1 FROM temp.fence_statements")?;
    }
    Ok(())
}

#[repr(C)]
struct Table {
    // SQLite's part comes first, as the C interface asks.
    base: ffi::sqlite3_vtab,
    host: Rc<Host>,
}

// SAFETY: `Table` is repr(C) and begins with sqlite3_vtab.
unsafe impl<'vtab> VTab<'vtab> for Table {
    type Aux = Share;
    type Cursor = Cursor;

    fn connect(
        _: &mut VTabConnection,
        aux: Option<&Share>,
        _module_name: &[u8],
        _database_name: &[u8],
        _table_name: &[u8],
        _args: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, Self)> {
        let host = Rc::clone(&aux.expect("create_module gives a share").0);
        host.guarded.set(true);
        let table = Table { base: ffi::sqlite3_vtab::default(), host };
        Ok((Cow::Borrowed(c"CREATE TABLE x(name TEXT, sql TEXT)"), table))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        info.set_estimated_cost(FILES.len() as f64);
        Ok(true)
    }

    fn open(&'vtab mut self) -> Result<Cursor> {
        Ok(Cursor { base: ffi::sqlite3_vtab_cursor::default(), row: 0 })
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.host.guarded.set(false);
        self.host.session.forget_statements();
    }
}

#[repr(C)]
struct Cursor {
    base: ffi::sqlite3_vtab_cursor,
    row: usize,
}

// SAFETY: `Cursor` is repr(C) and begins with sqlite3_vtab_cursor.
unsafe impl VTabCursor for Cursor {
    fn filter(&mut self, _: c_int, _: Option<&str>, _: &Filters<'_>) -> Result<()> {
        self.row = 0;
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.row += 1;
        Ok(())
    }

    fn eof(&self) -> bool {
        self.row >= FILES.len()
    }

    fn column(&self, context: &mut Context, column: c_int) -> Result<()> {
        let (name, sql) = FILES[self.row];
        context.set_result(&if column == 0 { name } else { sql })
    }

    fn rowid(&self) -> Result<i64> {
        Ok(self.row as i64)
    }
}
