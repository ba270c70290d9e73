//! Programs with tickwire that must not compile, in `programs`. There is nothing else in this package.
