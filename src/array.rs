//! The JSON arrays that batches take, read by SQLite's own JSON functions.
use rusqlite::types::ValueRef;
use rusqlite::Row;

use crate::operation::Operation;
use crate::session::Session;
use crate::{args, Error, Result};

pub(crate) const IS_ARRAY: &str =
    "SELECT CASE WHEN json_valid(?1) THEN json_type(?1) = 'array' ELSE 0 END";

// A file may have a table json_each, but not in temp.
pub(crate) const IDS: &str = "SELECT key + 1, type, atom FROM temp.json_each(?1)";

pub(crate) const PARTS: &str = "
    SELECT item.key + 1, part.key, part.type, part.atom
      FROM temp.json_each(?1) AS item
      LEFT JOIN temp.json_each(CASE item.type WHEN 'array' THEN item.value END) AS part";

const SHOWN: &str = "
    SELECT CASE WHEN type IN ('array', 'object') THEN value ELSE json_quote(value) END
      FROM temp.json_each(?1) WHERE key + 1 = ?2";

/// `[id, fence]` or `[id, fence, result]`
pub(crate) struct Item {
    pub(crate) id: String,
    pub(crate) fence: i64,
    pub(crate) result: Option<String>,
}

/// Refuses what is no array of ids.
pub(crate) fn check_ids(session: &Session, function: &str, ids: &str) -> Result<()> {
    check(session, function, ids)?;
    rows_of(session, Operation::ArrayOfIds, ids, |row| {
        let item: i64 = row.get(0)?;
        match (row.get_ref(1)?, row.get_ref(2)?) {
            (ValueRef::Text(b"text"), ValueRef::Text(id)) => {
                name(function, &format!("item {item}"), id.to_vec()).map(drop)
            }
            _ => Err(Error::invalid(function, format_args!("item {item} must be a text"))),
        }
    })
}

/// The items of an array of `[id, fence]` and `[id, fence, result]`.
pub(crate) fn items(session: &Session, function: &str, json: &str) -> Result<Vec<Item>> {
    check(session, function, json)?;
    let mut all: Vec<Parts> = Vec::new();
    rows_of(session, Operation::ArrayOfParts, json, |row| {
        let number = row.get(0)?;
        if all.last().is_none_or(|item| item.number != number) {
            all.push(Parts { number, ..Parts::default() });
        }
        let item = all.last_mut().expect("pushed above");
        match (row.get_ref(1)?, row.get_ref(2)?, row.get_ref(3)?) {
            (ValueRef::Integer(0), ValueRef::Text(b"text"), ValueRef::Text(id)) => {
                item.id = Some(id.to_vec());
            }
            // One beyond 2^63 comes as a REAL.
            (ValueRef::Integer(1), ValueRef::Text(b"integer"), ValueRef::Integer(fence)) => {
                item.fence = Some(fence);
            }
            (ValueRef::Integer(2), ValueRef::Text(b"text"), ValueRef::Text(result)) => {
                item.result = Some(result.to_vec());
            }
            (ValueRef::Integer(2), ValueRef::Text(b"null"), _) => {}
            _ => item.wrong = true,
        }
        Ok(())
    })?;
    // One answer for each, in the order of the array; json_each promises none.
    all.sort_by_key(|item| item.number);
    all.into_iter().map(|item| item.read(session, function, json)).collect()
}

/// What an item consists of, as far as it is read.
#[derive(Default)]
struct Parts {
    number: i64,
    id: Option<Vec<u8>>,
    fence: Option<i64>,
    result: Option<Vec<u8>>,
    wrong: bool,
}

impl Parts {
    fn read(self, session: &Session, function: &str, json: &str) -> Result<Item> {
        let number = self.number;
        let (false, Some(id), Some(fence)) = (self.wrong, self.id, self.fence) else {
            let shown = session.connection().query_row(SHOWN, (json, number), |row| {
                Ok(String::from_utf8_lossy(row.get_ref(0)?.as_bytes()?).into_owned())
            })?;
            return Err(Error::invalid(
                function,
                format_args!(
                    "item {number} must be [id, fence] or [id, fence, result], got {}",
                    args::Cut(&shown, 80)
                ),
            ));
        };
        let id = name(function, &format!("the id of item {number}"), id)?;
        let result = self
            .result
            .map(|result| utf8(function, &format!("the result of item {number}"), result));
        Ok(Item { id, fence, result: result.transpose()? })
    }
}

fn name(function: &str, what: &str, bytes: Vec<u8>) -> Result<String> {
    let name = utf8(function, what, bytes)?;
    args::name(function, what, &name)?;
    Ok(name)
}

/// JSON can spell half of a character, `"\ud800"`.
fn utf8(function: &str, what: &str, bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes)
        .map_err(|_| Error::invalid(function, format_args!("{what} must be valid UTF-8")))
}

fn check(session: &Session, function: &str, json: &str) -> Result<()> {
    let mut array = false;
    rows_of(session, Operation::IsArray, json, |row| {
        array = row.get(0)?;
        Ok(())
    })?;
    if !array {
        let got = args::Quoted(json);
        return Err(Error::invalid(function, format_args!("needs a JSON array, got {got}")));
    }
    // Older versions of SQLite cut a text there and say nothing.
    let mut rest = json;
    while let Some((_, escape)) = rest.split_once('\\') {
        if escape.starts_with("u0000") {
            return Err(Error::invalid(function, "the array must not contain a NUL character"));
        }
        rest = escape.get(1..).unwrap_or_default();
    }
    Ok(())
}

/// Shows `each` the rows of a statement about a JSON text, up to an error.
fn rows_of(
    session: &Session,
    operation: Operation,
    json: &str,
    mut each: impl FnMut(&Row<'_>) -> Result<()>,
) -> Result<()> {
    session.with(operation, |statement| {
        statement.raw_bind_parameter(1, json)?;
        let mut rows = statement.raw_query();
        let mut read = || {
            while let Some(row) = rows.next()? {
                each(row)?;
            }
            Ok(())
        };
        let done = read();
        drop(rows);
        // Not kept in memory until the statement is used again.
        statement.clear_bindings();
        Ok(done)
    })?
}
