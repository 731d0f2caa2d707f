//! Tests of the program as a user runs it: real processes, real files, a real terminal.

mod columns;
mod compressed;
mod demo;
mod evaluating;
mod exporting;
mod figures;
mod inserting;
mod interrupting;
mod json_lines;
mod keeping;
mod measuring;
mod messages;
mod prefixes;
mod querying;
mod repairing;
mod retraining;
mod support;
mod tables;
mod terminal;
mod texts;
mod waiting;
