//! The program, driven as a user would: real processes, real files, a real terminal.

mod compressed;
mod evaluating;
mod exporting;
mod inserting;
mod figures;
mod interrupting;
mod json_lines;
mod keeping;
mod measuring;
mod messages;
mod querying;
mod repairing;
mod prefixes;
mod retraining;
mod support;
mod terminal;
mod texts;
mod waiting;
