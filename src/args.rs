//! What an argument may be. The same limits stand in the SQL text; here they get a sentence.
use crate::{Error, Result};
use std::fmt;
use std::time::SystemTime;

/// id and owner: not empty, and no NUL, at which many clients would cut the text.
pub(crate) fn name(function: &str, argument: &str, value: &str) -> Result<()> {
    if value.is_empty() {
        return Err(Error::invalid(function, format_args!("{argument} must not be empty")));
    }
    if value.contains('\0') {
        return Err(Error::invalid(
            function,
            format_args!("{argument} must not contain a NUL character, got {}", Quoted(value)),
        ));
    }
    Ok(())
}

/// The pair with which a worker shows that it holds a job.
#[cfg(not(feature = "loadable"))]
pub(crate) fn holder(function: &str, id: &str, owner: &str) -> Result<()> {
    name(function, "id", id)?;
    name(function, "owner", owner)
}

/// A number of things: greater than 0.
pub(crate) fn count(function: &str, argument: &str, value: i64) -> Result<()> {
    if value > 0 {
        return Ok(());
    }
    Err(Error::invalid(function, format_args!("{argument} must be greater than 0, got {value}")))
}

/// A moment: any finite number of seconds.
pub(crate) fn moment(function: &str, argument: &str, value: f64) -> Result<()> {
    if value.is_finite() {
        return Ok(());
    }
    Err(Error::invalid(
        function,
        format_args!("{argument} must be a finite number, got {}", Number(value)),
    ))
}

/// A lease [now, now + ttl): its end is finite and after its beginning. Without a `now`, that of
/// the clock, read once more later, stands in.
pub(crate) fn lease(function: &str, now: Option<f64>, ttl: f64) -> Result<()> {
    let now = now.unwrap_or_else(clock);
    moment(function, "now", now)?;
    // Written so that NaN, for which no comparison holds, is refused.
    let positive = ttl > 0.0;
    if !positive {
        return Err(Error::invalid(
            function,
            format_args!("ttl must be greater than 0, got {}", Number(ttl)),
        ));
    }
    moment(function, "ttl", ttl)?;
    let sum = |problem: &str| {
        Err(Error::invalid(
            function,
            format_args!("now + ttl {problem}, got {} + {}", Number(now), Number(ttl)),
        ))
    };
    if !(now + ttl).is_finite() {
        return sum("must be finite");
    }
    if now + ttl <= now {
        return sum("must be after now");
    }
    Ok(())
}

/// Unix seconds.
pub(crate) fn clock() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// A number as a person would write it: `-1`, `0.5`, `1e308`, `NaN`.
pub(crate) struct Number(pub f64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.fract() == 0.0 && self.0.abs() < 1e15 {
            write!(f, "{:.0}", self.0)
        } else {
            write!(f, "{:?}", self.0)
        }
    }
}

/// A text in single quotes, cut after 40 characters.
pub(crate) struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", Cut(self.0, 40))
    }
}

/// The beginning of a text, so many characters of it; control characters escaped.
pub(crate) struct Cut<'a>(pub &'a str, pub usize);

impl fmt::Display for Cut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars().take(self.1) {
            if c.is_control() {
                write!(f, "{}", c.escape_default())?;
            } else {
                write!(f, "{c}")?;
            }
        }
        f.write_str(if self.0.chars().nth(self.1).is_some() { "..." } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence(result: Result<()>) -> String {
        result.expect_err("must be refused").to_string()
    }

    #[test]
    fn lease_sentences_name_function_and_value() {
        for (now, ttl, expected) in [
            (0.0, -1.0, "claim: ttl must be greater than 0, got -1"),
            (0.0, 0.0, "claim: ttl must be greater than 0, got 0"),
            (0.0, f64::NAN, "claim: ttl must be greater than 0, got NaN"),
            (0.0, f64::NEG_INFINITY, "claim: ttl must be greater than 0, got -inf"),
            (0.0, f64::INFINITY, "claim: ttl must be a finite number, got inf"),
            (f64::NAN, 1.0, "claim: now must be a finite number, got NaN"),
            (1e308, 1e308, "claim: now + ttl must be finite, got 1e308 + 1e308"),
            (1e17, 1.0, "claim: now + ttl must be after now, got 1e17 + 1"),
        ] {
            assert_eq!(sentence(lease("claim", Some(now), ttl)), expected);
        }
        assert!(lease("claim", Some(-100.0), 1e-9).is_ok());
        // The sum is finite, the product is not.
        assert!(lease("claim", Some(1e200), 1e200).is_ok());
    }

    #[test]
    fn name_sentences_name_function_and_value() {
        assert_eq!(sentence(name("enqueue", "id", "")), "enqueue: id must not be empty");
        assert_eq!(
            sentence(name("claim", "owner", "a\0b")),
            "claim: owner must not contain a NUL character, got 'a\\u{0}b'"
        );
        let long = "é".repeat(50) + "\0";
        assert_eq!(
            sentence(name("claim", "owner", &long)),
            format!("claim: owner must not contain a NUL character, got '{}...'", "é".repeat(40))
        );
        assert!(name("claim", "owner", "o' OR '1'='1").is_ok());
    }

    #[test]
    fn a_count_is_greater_than_zero() {
        for wrong in [0, -1, i64::MIN] {
            let expected = format!("purge: limit must be greater than 0, got {wrong}");
            assert_eq!(sentence(count("purge", "limit", wrong)), expected);
        }
        assert!(count("purge", "limit", 1).is_ok());
        assert!(count("purge", "limit", i64::MAX).is_ok());
    }

    #[cfg(not(feature = "loadable"))]
    #[test]
    fn a_holder_has_two_names() {
        assert_eq!(sentence(holder("renew", "", "w")), "renew: id must not be empty");
        assert_eq!(sentence(holder("renew", "j", "")), "renew: owner must not be empty");
        assert!(holder("renew", "j", "w").is_ok());
    }

    #[test]
    fn a_number_is_written_as_rust_writes_it_but_without_a_needless_fraction() {
        let written =
            [1e15, 999_999_999_999_999.0, -1.0, 0.5, 1e308].map(|n| Number(n).to_string());
        assert_eq!(written, ["1000000000000000.0", "999999999999999", "-1", "0.5", "1e308"]);
    }
}
