//! Changes SQL texts in small ways: every condition and assignment dropped, every comparison
//! turned, every statement, trigger, constraint, ORDER BY and LIMIT left out, every number raised.

/// A file of `sql/` with one change.
pub struct Mutant {
    pub file: String,
    name: String,
    /// What was changed, and where: the name under which a survivor is explained.
    pub change: String,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Word,
    Number,
    Text,
    Parameter,
    Sign,
}

/// A piece of SQL that is no comment and no space.
#[derive(Clone, Copy, Debug)]
struct Token<'a> {
    kind: Kind,
    text: &'a str,
    start: usize,
    /// How many parentheses are open around it.
    depth: usize,
}

impl Token<'_> {
    fn end(&self) -> usize {
        self.start + self.text.len()
    }

    fn is(&self, word: &str) -> bool {
        self.text.eq_ignore_ascii_case(word) && self.kind != Kind::Text
    }

    fn is_any(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.is(word))
    }
}

fn tokens(sql: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let (mut start, mut depth) = (0, 0);
    let take = |from: usize, accept: &dyn Fn(char) -> bool| {
        sql[from..].find(|c| !accept(c)).map_or(sql.len(), |len| from + len)
    };
    while let Some(c) = sql[start..].chars().next() {
        let rest = &sql[start..];
        let (kind, end) = if c.is_whitespace() {
            start += c.len_utf8();
            continue;
        } else if rest.starts_with("--") {
            start = rest.find('\n').map_or(sql.len(), |len| start + len);
            continue;
        } else if c == '\'' {
            let mut end = start + 1;
            loop {
                end += sql[end..].find('\'').expect("the text ends") + 1;
                if !sql[end..].starts_with('\'') {
                    break (Kind::Text, end);
                }
                end += 1;
            }
        } else if c == '{' {
            (Kind::Word, start + rest.find('}').expect("the placeholder ends") + 1)
        } else if c == '?' {
            (Kind::Parameter, take(start + 1, &|c| c.is_ascii_digit()))
        } else if c.is_ascii_digit() {
            (Kind::Number, take(start, &|c| c.is_ascii_alphanumeric() || c == '.'))
        } else if c.is_alphabetic() || c == '_' {
            (Kind::Word, take(start, &|c| c.is_alphanumeric() || c == '_'))
        } else {
            let two = ["<=", ">=", "<>", "||"].iter().find(|sign| rest.starts_with(**sign));
            (Kind::Sign, start + two.map_or(c.len_utf8(), |sign| sign.len()))
        };
        let text = &sql[start..end];
        depth -= usize::from(text == ")");
        tokens.push(Token { kind, text, start, depth });
        depth += usize::from(text == "(");
        start = end;
    }
    tokens
}

/// Every change of one file.
pub fn mutants(file: &str, sql: &str) -> Vec<Mutant> {
    let tokens = tokens(sql);
    let mut all = Mutants { file, sql, tokens: &tokens, found: Vec::new() };
    all.conditions();
    all.comparisons();
    all.assignments();
    all.statements();
    all.constraints();
    all.orders();
    all.expressions();
    all.numbers();
    all.found
}

struct Mutants<'a> {
    file: &'a str,
    sql: &'a str,
    tokens: &'a [Token<'a>],
    found: Vec<Mutant>,
}

/// What ends a condition at its own depth.
const CLAUSES: &[&str] = &[
    ";",
    ",",
    "WHERE",
    "WHEN",
    "ON",
    "THEN",
    "ELSE",
    "END",
    "SELECT",
    "FROM",
    "BEGIN",
    "RETURNING",
    "ORDER",
    "GROUP",
    "LIMIT",
    "UNION",
    "SET",
    "CASE",
    "AS",
];

impl<'a> Mutants<'a> {
    /// Replaces the tokens `from..to`.
    fn replace(&mut self, from: usize, to: usize, by: &str, what: &str) {
        let (start, end) = (self.tokens[from].start, self.tokens[to - 1].end());
        let text = [&self.sql[..start], by, &self.sql[end..]].concat();
        let shown = |tokens: &[Token<'_>]| {
            let texts: Vec<_> = tokens.iter().map(|t| t.text).collect();
            texts.join(" ")
        };
        let cut = |text: String| match text.char_indices().nth(60) {
            Some((at, _)) => format!("{}..", &text[..at]),
            None => text,
        };
        // Its neighbours tell it from others; line numbers would not last.
        let before = shown(&self.tokens[from.saturating_sub(4)..from]);
        let after = shown(&self.tokens[to..self.tokens.len().min(to + 4)]);
        let old = cut(shown(&self.tokens[from..to]));
        let change = format!("{}: {what}: {before} [{old} -> {by}] {after}", self.file);
        let again = self.found.iter().filter(|m| m.name == change).count();
        let place = if again > 0 { format!(" ({})", again + 1) } else { String::new() };
        self.found.push(Mutant {
            file: self.file.into(),
            name: change.clone(),
            change: change + &place,
            text,
        });
    }

    /// The end of what begins at `from`, at the depth there: the first token that `ends` it.
    fn until(&self, from: usize, ends: impl Fn(&Token<'_>) -> bool) -> usize {
        let depth = self.tokens[from].depth;
        let ended = |t: &Token<'_>| t.depth < depth || t.depth == depth && ends(t);
        let rest = &self.tokens[from..];
        from + rest.iter().position(ended).unwrap_or(rest.len())
    }

    /// Conditions: in an AND each part is true, in an OR each part is false, and a condition that
    /// stands alone is true, or false in a CASE.
    fn conditions(&mut self) {
        let mut at = 0;
        while at < self.tokens.len() {
            let before = at.checked_sub(1).map(|i| self.tokens[i]);
            let opens = before.is_some_and(|t| t.is_any(CLAUSES) || t.is("("));
            let end = self.until(at, |t| t.is_any(CLAUSES));
            if !opens || end == at {
                at += 1;
                continue;
            }
            let ors = self.split(at, end, "OR");
            for &(from, to) in &ors {
                let ands = self.split(from, to, "AND");
                if ands.len() > 1 {
                    for (from, to) in ands {
                        self.replace(from, to, "1", "condition dropped");
                    }
                }
                if ors.len() > 1 {
                    self.replace(from, to, "0", "alternative dropped");
                }
            }
            let before = before.expect("opens");
            let alone = ors.len() == 1 && self.split(at, end, "AND").len() == 1;
            if alone && before.is("WHERE") {
                self.replace(at, end, "1", "condition dropped");
            } else if alone && before.is("WHEN") {
                let case = self.tokens.get(end).is_some_and(|t| t.is("THEN"));
                self.replace(at, end, if case { "0" } else { "1" }, "condition dropped");
            }
            at += 1;
        }
    }

    fn split(&self, from: usize, to: usize, word: &str) -> Vec<(usize, usize)> {
        let depth = self.tokens[from].depth;
        let mut parts = Vec::new();
        let (mut start, mut between) = (from, false);
        for i in from..to {
            let token = self.tokens[i];
            if token.depth > depth {
                continue;
            }
            if token.is("BETWEEN") {
                between = true;
            } else if token.is("AND") && between {
                between = false;
            } else if token.is(word) {
                parts.push((start, i));
                start = i + 1;
            }
        }
        parts.push((start, to));
        parts
    }

    fn comparisons(&mut self) {
        for i in 0..self.tokens.len() {
            let token = self.tokens[i];
            let next = self.tokens.get(i + 1).copied();
            let after = |word: &str| i > 0 && self.tokens[i - 1].is(word);
            let turned: &[&str] = match token.text {
                "<=" => &["<", ">"],
                "<" => &["<=", ">"],
                ">=" => &[">", "<"],
                ">" => &[">=", "<"],
                "<>" => &["="],
                "=" if !self.assigns(i) => &["<>"],
                _ => &[],
            };
            for by in turned {
                self.replace(i, i + 1, by, "comparison");
            }
            if token.is("IS") {
                match next.filter(|t| t.is("NOT")) {
                    Some(_) => self.replace(i, i + 2, "IS", "comparison"),
                    None => self.replace(i, i + 1, "IS NOT", "comparison"),
                }
            } else if token.is("NOT") && next.is_some_and(|t| t.is_any(&["EXISTS", "IN"])) {
                if !after("IF") {
                    self.replace(i, i + 1, "", "negation dropped");
                }
            } else if token.is_any(&["EXISTS", "BETWEEN"]) && !after("NOT") {
                let turned = format!("NOT {}", token.text);
                self.replace(i, i + 1, &turned, "comparison");
            }
        }
    }

    /// Whether this `=` assigns.
    fn assigns(&self, at: usize) -> bool {
        if at < 2 || !self.tokens[at - 2].is_any(&["SET", ","]) {
            return false;
        }
        let depth = self.tokens[at].depth;
        let earlier = self.tokens[..at].iter().rev().filter(|t| t.depth == depth);
        let clause = earlier.clone().find(|t| t.is_any(&["SET", "WHERE", "SELECT", "BY", "FROM"]));
        clause.is_some_and(|t| t.is("SET"))
    }

    fn assignments(&mut self) {
        for i in 0..self.tokens.len() {
            if self.assigns(i) {
                let ends = |t: &Token<'_>| t.is_any(&[",", "WHERE", "RETURNING", ";", "FROM"]);
                let end = self.until(i + 1, ends);
                let column = self.tokens[i - 1].text;
                let of = if self.tokens[i + 1].is("excluded") { "fence_gate." } else { "" };
                self.replace(i + 1, end, &format!("{of}{column}"), "assignment dropped");
            }
        }
    }

    /// Statements, and those inside triggers.
    fn statements(&mut self) {
        let (mut start, mut body, mut inner) = (0, None, 0);
        let mut several = Vec::new();
        for i in 0..self.tokens.len() {
            let token = self.tokens[i];
            if token.is("BEGIN") {
                body = Some(i);
                inner = i + 1;
            } else if token.is("END") && body.is_some_and(|_| self.tokens[i - 1].is(";")) {
                body = None;
            } else if token.is(";") && body.is_some() {
                self.replace(inner, i + 1, "SELECT 1;", "statement dropped");
                inner = i + 1;
            } else if token.is(";") {
                several.push((start, i + 1));
                start = i + 1;
            }
        }
        for &(from, to) in &several {
            self.replace(from, to, "SELECT 1 WHERE 0;", "statement dropped");
        }
    }

    fn constraints(&mut self) {
        for i in 0..self.tokens.len() {
            let is =
                |offset: usize, word: &str| self.tokens.get(i + offset).is_some_and(|t| t.is(word));
            if is(0, "CHECK") {
                let end = self.until(i + 2, |_| false);
                self.replace(i, end + 1, "", "constraint dropped");
            } else if is(0, "PRIMARY") && is(1, "KEY")
                || is(0, "NOT") && is(1, "NULL") && !self.tokens[i - 1].is("IS")
            {
                self.replace(i, i + 2, "", "constraint dropped");
            } else if is(0, "DEFAULT") {
                self.replace(i, i + 2, "", "default dropped");
            } else if is(0, "COLLATE") {
                self.replace(i, i + 2, "", "collation dropped");
            } else if is(0, "IF") && is(1, "NOT") {
                self.replace(i, i + 3, "", "repeatable");
            } else if is(0, "ABORT") {
                self.replace(i, i + 1, "FAIL", "what was done before stays");
            } else if is(0, "OF") {
                let end = self.until(i + 1, |t| t.is("ON"));
                for column in i + 1..end {
                    if !self.tokens[column].is(",") {
                        let (from, to) = if column == i + 1 {
                            (column, column + 2)
                        } else {
                            (column - 1, column + 1)
                        };
                        self.replace(from, to, "", "column dropped");
                    }
                }
            }
        }
    }

    fn orders(&mut self) {
        for i in 0..self.tokens.len() {
            let token = self.tokens[i];
            let ends = |t: &Token<'_>| t.is_any(&["LIMIT", ";", "ORDER", "UNION", "RETURNING"]);
            if token.is_any(&["ORDER", "GROUP"]) {
                let end = self.until(i, |t| t.start > token.start && ends(t));
                self.replace(i, end, "", "order or grouping dropped");
                if let Some(comma) = (i..end).find(|&c| self.tokens[c].is(",")) {
                    self.replace(comma, end, "", "order dropped");
                }
            } else if token.is("LIMIT") {
                let end = self.until(i, |t| t.start > token.start && ends(t));
                self.replace(i, end, "", "limit dropped");
            } else if token.is("DESC") {
                self.replace(i, i + 1, "", "order turned");
            }
        }
    }

    fn expressions(&mut self) {
        for i in 0..self.tokens.len() {
            let token = self.tokens[i];
            let opens = self.tokens.get(i + 1).is_some_and(|t| t.is("("));
            if token.is("main") {
                self.replace(i, i + 2, "", "schema dropped");
            } else if token.is("+") {
                self.replace(i, i + 1, "-", "sign");
            } else if token.is("abs") && opens {
                self.replace(i, i + 1, "", "function dropped");
            } else if token.is("CAST") && opens {
                let end = self.until(i + 2, |t| t.is("AS"));
                let close = self.until(i + 2, |_| false);
                let value =
                    self.sql[self.tokens[i + 2].start..self.tokens[end - 1].end()].to_owned();
                self.replace(i, close + 1, &value, "cast dropped");
            } else if token.is_any(&["max", "min"]) && opens {
                let other = if token.is("max") { "min" } else { "max" };
                self.replace(i, i + 1, other, "function");
            }
        }
    }

    fn numbers(&mut self) {
        for i in 0..self.tokens.len() {
            let token = self.tokens[i];
            let exists = i > 0
                && self.tokens[i - 1].is("SELECT")
                && self.tokens.get(i + 1).is_some_and(|t| t.is("FROM"));
            // What EXISTS selects is of no interest.
            if token.kind == Kind::Number && !exists {
                let by = match token.text {
                    "9e999" => "1e300".into(),
                    "9223372036854775807" => "9223372036854775806".into(),
                    text => match text.parse::<i64>() {
                        Ok(number) => (number + 1).to_string(),
                        Err(_) => continue, // of the clock
                    },
                };
                self.replace(i, i + 1, &by, "number");
            }
        }
    }
}
