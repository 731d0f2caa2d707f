//! Parses the header of a `.npy` file: a Python dictionary literal with three known keys.

/// The contents of a numpy header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    /// The key `descr`: byte order, kind and width of a value, as in `<f4`.
    pub(super) descr: String,
    /// Whether columns, not rows, are contiguous.
    pub(super) fortran_order: bool,
    /// The length of each dimension.
    pub(super) shape: Vec<u64>,
}

/// Parses the dictionary. The error is a phrase that follows the file's name.
pub(super) fn parse(text: &str) -> Result<Header, String> {
    let mut rest = Cursor { text };
    let (mut descr, mut fortran_order, mut shape) = (None, None, None);
    rest.expect('{')?;
    while !rest.eat('}') {
        let key = rest.string()?;
        rest.expect(':')?;
        match key.as_str() {
            "descr" => descr = Some(rest.descr()?),
            "fortran_order" => fortran_order = Some(rest.boolean()?),
            "shape" => shape = Some(rest.shape()?),
            other => return Err(format!("the numpy header has an unknown key {other:?}")),
        }
        if !rest.eat(',') {
            rest.expect('}')?;
            break;
        }
    }
    if !rest.text.trim_end_matches(['\n', ' ', '\0']).is_empty() {
        return Err("the numpy header continues after its dictionary".into());
    }
    let missing = |key| format!("the numpy header has no key {key:?}");
    Ok(Header {
        descr: descr.ok_or_else(|| missing("descr"))?,
        fortran_order: fortran_order.ok_or_else(|| missing("fortran_order"))?,
        shape: shape.ok_or_else(|| missing("shape"))?,
    })
}

/// The text that is still to be parsed.
struct Cursor<'a> {
    text: &'a str,
}

impl Cursor<'_> {
    fn skip_space(&mut self) {
        self.text = self.text.trim_start();
    }

    fn eat(&mut self, wanted: char) -> bool {
        self.skip_space();
        match self.text.strip_prefix(wanted) {
            Some(rest) => {
                self.text = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, wanted: char) -> Result<(), String> {
        if self.eat(wanted) {
            return Ok(());
        }
        Err(match self.text.chars().next() {
            Some(found) => format!("the numpy header has {found:?} instead of {wanted:?}"),
            None => format!("the numpy header ends before {wanted:?}"),
        })
    }

    fn string(&mut self) -> Result<String, String> {
        let quote = if self.eat('"') { '"' } else { '\'' };
        if quote == '\'' {
            self.expect('\'')?;
        }
        let (inside, rest) = self
            .text
            .split_once(quote)
            .ok_or("the numpy header has an unterminated string")?;
        self.text = rest;
        Ok(inside.to_owned())
    }

    fn descr(&mut self) -> Result<String, String> {
        self.skip_space();
        if self.text.starts_with('[') {
            return Err("holds records with named fields; save one field as a plain array".into());
        }
        self.string()
    }

    fn boolean(&mut self) -> Result<bool, String> {
        self.skip_space();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.text.strip_prefix(word) {
                self.text = rest;
                return Ok(value);
            }
        }
        Err("the numpy header's fortran_order is neither True nor False".into())
    }

    fn shape(&mut self) -> Result<Vec<u64>, String> {
        self.expect('(')?;
        let mut shape = Vec::new();
        while !self.eat(')') {
            self.skip_space();
            let digits = self.text.bytes().take_while(u8::is_ascii_digit).count();
            let (number, rest) = self.text.split_at(digits);
            shape.push(
                number
                    .parse()
                    .map_err(|_| "the numpy header's shape is not a list of lengths".to_owned())?,
            );
            // numpy under Python 2 wrote long integers with an L.
            self.text = rest.strip_prefix('L').unwrap_or(rest);
            if shape.len() > 32 {
                return Err("the numpy header has more than 32 dimensions".into());
            }
            if !self.eat(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(shape)
    }
}
