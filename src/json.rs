//! The JSON that functions answer: built here because json_object() is missing from SQLite
//! builds before 3.38 and rounds a REAL to 15 digits.
use rusqlite::types::ValueRef;

pub(crate) fn object(row: &rusqlite::Row<'_>) -> rusqlite::Result<String> {
    let mut out = String::from("{");
    for i in 0..row.as_ref().column_count() {
        if i > 0 {
            out.push(',');
        }
        string(&mut out, row.as_ref().column_name(i)?);
        out.push(':');
        value(&mut out, row.get_ref(i)?);
    }
    out.push('}');
    Ok(out)
}

/// `[["a",1],["b",7]]`
pub(crate) fn pairs<'a>(jobs: impl Iterator<Item = (&'a str, i64)>) -> String {
    let mut out = String::from("[");
    for (id, fence) in jobs {
        out.push_str(if out.len() > 1 { ",[" } else { "[" });
        string(&mut out, id);
        out.push_str(&format!(",{fence}]"));
    }
    out.push(']');
    out
}

fn value(out: &mut String, value: ValueRef<'_>) {
    match value {
        ValueRef::Null => out.push_str("null"),
        ValueRef::Integer(i) => out.push_str(&i.to_string()),
        ValueRef::Real(r) if r.is_finite() => out.push_str(&format!("{r:?}")),
        // JSON has no infinity; SQLite writes it so too, and parsers read it as one.
        ValueRef::Real(r) => out.push_str(if r.is_sign_positive() { "9e999" } else { "-9e999" }),
        ValueRef::Text(t) | ValueRef::Blob(t) => string(out, &String::from_utf8_lossy(t)),
    }
}

fn string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    #[test]
    fn every_value_survives_the_round_trip() {
        let conn = Connection::open_in_memory().unwrap();
        let text = "quote \" backslash \\ newline \n tab \t bell \u{7} delete \u{7f} é 𝄞";
        let json: String = conn
            .query_row(
                "SELECT ?1 AS a, 0.1 + 0.2 AS b, NULL AS c, 9007199254740993 AS d, 1e300 AS e",
                [text],
                super::object,
            )
            .unwrap();
        let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            parsed,
            serde_json::json!({"a": text, "b": 0.1 + 0.2, "c": null, "d": 9007199254740993_i64, "e": 1e300})
        );
    }

    /// As SQLite's own functions write it: parsers without a limit read it back.
    #[test]
    fn infinity_is_a_number_too_large() {
        let conn = Connection::open_in_memory().unwrap();
        let sql = "SELECT 9e999 AS up, -9e999 AS down, -1.5 AS finite";
        let json: String = conn.query_row(sql, [], super::object).unwrap();
        assert_eq!(json, r#"{"up":9e999,"down":-9e999,"finite":-1.5}"#);
    }
}
