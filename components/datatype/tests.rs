//! Types against the values of the standard's text, and against a model that lists every byte.

mod any_type;
mod examples;
mod maps;
