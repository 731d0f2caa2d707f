//! The meaning of the fields of a JSON object, and of the columns of CSV and TSV.

/// The field of a vector. No flag renames it.
pub(super) const VECTOR: &str = "vector";

/// The fields of a JSON object, or of a table with a header, that are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fields {
    /// The field of the key.
    pub key: String,
    /// The field of the text.
    pub text: String,
    /// Whether other fields are ignored instead of becoming columns.
    pub ignore_unknown: bool,
    /// Whether the first line of CSV and TSV has the names of its columns.
    pub header: bool,
}

impl Default for Fields {
    fn default() -> Self {
        Self {
            key: "key".into(),
            text: "text".into(),
            ignore_unknown: false,
            header: false,
        }
    }
}

impl Fields {
    /// Returns an error if no row can be read with these names.
    pub fn check(&self) -> Result<(), String> {
        let (key, text) = (&self.key, &self.text);
        for (flag, name) in [("--key-field", key), ("--text-field", text)] {
            if name.is_empty() {
                return Err(format!("{flag} is empty; give the name of a field"));
            }
            if name == VECTOR {
                return Err(format!(
                    "{flag} can't be {VECTOR:?}, the field of precomputed vectors"
                ));
            }
        }
        if key == text {
            return Err(format!(
                "the key and the text can't both be the field {key:?}; give --key-field and --text-field different names"
            ));
        }
        Ok(())
    }
}
