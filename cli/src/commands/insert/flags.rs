//! The flags of an insert. A flag without effect is an error.

use super::Insert;
use crate::exit::usage;
use crate::rows::{Fields, Format, Input, Source};
use anyhow::Result;

impl Insert {
    /// Returns the inputs.
    pub(super) fn inputs(&self) -> Result<Vec<Input>> {
        let inputs: Vec<Input> = self
            .files
            .iter()
            .map(|file| Input::of(file, self.format))
            .collect::<Result<_>>()?;
        let stdin = |input: &&Input| input.source == Source::Stdin;
        if inputs.iter().filter(stdin).count() > 1 {
            return Err(usage("standard input can be read only once; give `-` once"));
        }
        if self.keys.is_some() {
            expect_one_without_keys(&inputs)?;
        }
        Ok(inputs)
    }

    /// Returns the names of the fields of JSON objects.
    pub(super) fn fields(&self, inputs: &[Input]) -> Result<Fields> {
        let given = [
            ("--key-field", self.key_field.is_some()),
            ("--text-field", self.text_field.is_some()),
            ("--ignore-unknown", self.ignore_unknown),
        ];
        let any = |formats: &[Format]| inputs.iter().any(|input| formats.contains(&input.format));
        let any_table = any(&[Format::Csv, Format::Tsv]);
        if self.header && !any_table {
            return Err(usage(
                "--header is for CSV and TSV, and no FILE is one of them",
            ));
        }
        let any_named = any(&[Format::Jsonl]) || self.header;
        if let Some((flag, _)) = given.iter().find(|(_, given)| *given && !any_named) {
            return Err(usage(match any_table {
                true => format!("{flag} is for JSON objects, and for CSV and TSV with --header"),
                false => format!("{flag} is for JSON objects, and no FILE is JSONL"),
            }));
        }
        let default = Fields::default();
        let fields = Fields {
            key: self.key_field.clone().unwrap_or(default.key),
            text: self.text_field.clone().unwrap_or(default.text),
            ignore_unknown: self.ignore_unknown,
            header: self.header,
        };
        fields.check().map_err(usage)?;
        Ok(fields)
    }
}

fn expect_one_without_keys(inputs: &[Input]) -> Result<()> {
    let [input] = inputs else {
        return Err(usage(
            "--keys is for the rows of one FILE; insert the files one by one",
        ));
    };
    match input.format.numbered() {
        true => Ok(()),
        false => Err(usage(format!(
            "--keys is for rows without keys, but the rows of {} have keys; --key-field chooses the field of a \
             JSON object, or the column below a header",
            input.source.name()
        ))),
    }
}
